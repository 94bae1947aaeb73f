"""What a training spends its time on, measured by the script itself: ``--truth FILE``.

The demos use it so that what tuimon says from outside can be compared with what the loop knows from inside.
It cuts a step the way tuimon does: *data* until the batch is there, *forward* until ``backward()`` is called,
*backward*, *optimizer*, and *other* for the rest of the turn; evaluation is counted beside the steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

#: steps left out of the summary: the first ones start workers and allocate
WARMUP_STEPS = 5


class Stopwatch:
    """``lap(name)`` books the time since the last lap under ``name``; ``step()`` ends a step."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._open: dict[str, float] = {}
        self._steps: list[dict[str, float]] = []
        self._eval_s = 0.0

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self._open[phase] = self._open.get(phase, 0.0) + now - self._last
        self._last = now

    def step(self) -> None:
        self.lap("other")
        self._steps.append(self._open)
        self._open = {}

    def eval(self) -> None:
        """The time since the last lap was evaluation."""
        now = time.perf_counter()
        self._eval_s += now - self._last
        self._last = now

    def restart(self) -> None:
        """Forget the time since the last lap (set-up)."""
        self._last = time.perf_counter()
        self._open = {}

    def step_ms(self) -> float | None:
        """Median step time so far, without the first steps."""
        measured = self._steps[WARMUP_STEPS:] or self._steps
        if not measured:
            return None
        return statistics.median(sum(step.values()) for step in measured) * 1e3

    def truth(self) -> dict[str, object]:
        measured = self._steps[WARMUP_STEPS:] or self._steps
        total_s = sum(sum(step.values()) for step in measured)
        names = sorted({name for step in measured for name in step})
        seconds = {name: sum(step.get(name, 0.0) for step in measured) for name in names}
        return {
            "steps": len(self._steps),
            "measured_steps": len(measured),
            "median_ms": self.step_ms(),
            "step_ms": [sum(step.values()) * 1e3 for step in self._steps],
            "shares": {name: seconds[name] / total_s for name in names} if total_s else {},
            "ms_per_step": {name: seconds[name] / len(measured) * 1e3 for name in names} if measured else {},
            "eval_s": self._eval_s,
        }

    def write(self, path: str | None) -> None:
        """Write the truth as JSON, when it was asked for."""
        if path:
            Path(path).write_text(json.dumps(self.truth(), indent=2) + "\n")


class Budget:
    """At most ``steps`` steps and ``seconds`` seconds, whichever ends first; None: no limit."""

    def __init__(self, steps: int | None, seconds: float | None) -> None:
        self.done = 0
        self._steps = steps
        self._until = None if seconds is None else time.monotonic() + seconds

    def count(self) -> None:
        """One more step was made."""
        self.done += 1

    def spent(self) -> bool:
        if self._steps is not None and self.done >= self._steps:
            return True
        return self._until is not None and time.monotonic() >= self._until


def add_common_options(parser: argparse.ArgumentParser, *, epochs: int, threads: int | None = None) -> None:
    """The options that every demo has."""
    parser.add_argument("--epochs", type=int, default=epochs, help="at most this many epochs (default %(default)s)")
    parser.add_argument("--steps", type=int, help="stop after this many training steps")
    parser.add_argument("--seconds", type=float, help="stop after this many seconds of training")
    choice = "torch's own choice" if threads is None else "%(default)s"
    parser.add_argument("--threads", type=int, default=threads, help=f"torch's intra-op threads (default: {choice})")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default %(default)s)")
    parser.add_argument("--truth", metavar="FILE", help="write phase shares measured by this script, as JSON")
