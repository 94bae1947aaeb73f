"""DataLoader workers that idle: they share their work, so what one of them shows holds for all for a while."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuimon.sources.stacks.frames.frame_ids import RawFrame, bare_name
from tuimon.sources.stacks.pyspy.output import WindowSamples
from tuimon.torch_code import is_loader_idle_loop, loads_data

#: Share (0..1) of a worker's samples in which it waits for something to do, from which it idles, of at least so many:
#: our choice. Of 8 samples of one that works half of the time, 7 or 8 are idle in 4 of 100 cases.
_IDLE_SHARE, _ENOUGH_SAMPLES = 0.8, 8
#: Seconds for which workers that idle are not sampled: our choice, some windows of the trainer. What they cost goes to
#: the trainer meanwhile, whose samples show more.
_RESTS_S = 5.0


class IdleWorkers:
    """Whether the workers of the run's one trainer idle, by their latest window."""

    def __init__(self) -> None:
        self._until_s = -math.inf

    def add_window(self, samples: WindowSamples, now_s: float) -> None:
        """Note what a window of a worker shows."""
        main = samples.threads[0].stacks if samples.threads else None
        total = main.total() if main is not None else 0
        if main is None or total < _ENOUGH_SAMPLES:
            return
        idle = sum(count for stack, count in main.items() if _is_idle(stack))
        self._until_s = now_s + _RESTS_S if idle >= _IDLE_SHARE * total else now_s

    def left(self, workers: Sequence[int], trainers: Sequence[int], now_s: float) -> Sequence[int]:
        """The workers to sample: none while they idle. Those of several trainers may differ."""
        return () if now_s < self._until_s and len(trainers) == 1 else workers


def _is_idle(stack: Sequence[RawFrame]) -> bool:
    """Whether the worker's loop makes no batch: it waits for the indices of one."""
    own = next((frame for frame in reversed(stack) if loads_data(frame.file, bare_name(frame.function))), None)
    return own is not None and is_loader_idle_loop(own.file, bare_name(own.function))
