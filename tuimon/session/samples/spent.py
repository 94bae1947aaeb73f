"""How long a training thread has done what markers do not show: imports, compilation, checkpoints, waits outside."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Literal, NamedTuple

from tuimon.records import Stacks, Steps
from tuimon.session.loop_tree.activity import awaits_program, outside_wait
from tuimon.session.loop_tree.frame_table import FrameTable, KnownFrame
from tuimon.session.loop_tree.roles import stack_phase
from tuimon.session.samples.set_up import imported_by, imported_for_compiler

Work = Literal["import", "compile", "checkpoint", "network", "program", "prompt", "first batch", "none"]

#: Windows that are held until it is known when the loop began: a first step may compile for ten minutes.
_HELD = 600


Seconds = dict[str, float]  # by Work


class _Window(NamedTuple):
    begin_s: float
    end_s: float
    works: Seconds


class Spent:
    """Seconds by work: before the loop, in it, and since its latest step.

    Time without samples is divided like the window of samples that follows it.
    """

    def __init__(self, frames: FrameTable) -> None:
        self.in_loop: Seconds = defaultdict(float)
        self.since_step: Seconds = defaultdict(float)
        self.compiling_since_s: float | None = None  # None: its latest samples are mostly of something else
        self._before: Seconds = defaultdict(float)
        self._frames = frames
        self._early: list[_Window] = []
        self._first: _Window | None = None
        self.begun_s: float | None = None
        self.saves = 0  # samples since then in which a checkpoint is saved
        self.end_s = -math.inf  # of the latest window

    def add_window(self, record: Stacks, tid: int) -> None:
        """Fold a window of samples, by its training thread."""
        counts: Counter[str] = Counter()
        for stack in record.stacks:
            if stack.tid == tid:
                counts[work_of(self._frames.stack(stack.frames))] += stack.count
        self._add_window(record, counts)

    def add_awaited(self, record: Stacks) -> None:
        """Fold a window of a process that it has started, such as ``pip``: until that ends, it is sampled instead."""
        if self.begun_s is None:
            self._add_window(record, Counter(program=1))

    def _add_window(self, record: Stacks, counts: Counter[str]) -> None:
        begin_s = record.t - record.window_s if math.isinf(self.end_s) else self.end_s
        total = counts.total()
        if not total or record.t <= begin_s:
            return
        self.end_s = record.t
        works = {work: (record.t - begin_s) * n / total for work, n in counts.items()}
        if 2 * counts["compile"] <= total:
            self.compiling_since_s = None
        elif self.compiling_since_s is None:
            self.compiling_since_s = begin_s
        window = _Window(begin_s, record.t, works)
        self._first = self._first or window
        if self.begun_s is not None:
            self._divide(window, self.begun_s)
            self.saves += counts["checkpoint"]
            return
        self._early.append(window)
        if len(self._early) > _HELD:
            _add(self._before, self._early.pop(0).works)

    def begin(self, t: float) -> None:
        """The loop has begun at a moment, or a process that this one started and that trains."""
        if self.begun_s is not None:
            return
        self.begun_s = t
        for window in self._early:
            self._divide(window, t)
        self._early.clear()

    def _divide(self, window: _Window, begun_s: float) -> None:
        """A window may have begun before the loop: its samples may come after the first steps."""
        part = min(1.0, max(0.0, (begun_s - window.begin_s) / (window.end_s - window.begin_s)))
        _add(self._before, window.works, part)
        _add(self.since_step, window.works, 1 - part)

    def end_steps(self, record: Steps) -> None:
        """Steps have ended; of a loop's last one it may be known only at the end of the process."""
        if record.count and record.last_step_s is None:
            _add(self.in_loop, self.since_step)
            self.since_step.clear()

    def before(self, started_s: float) -> Seconds:
        """Seconds from the start of the process to its loop; until that begins, all."""
        seconds, first = self._before.copy(), self._first
        if first is not None and first.begin_s > started_s:
            _add(seconds, first.works, (first.begin_s - started_s) / (first.end_s - first.begin_s))
        for window in self._early:
            _add(seconds, window.works)
        return seconds


def _add(seconds: Seconds, works: Seconds, part: float = 1.0) -> None:
    for work, took_s in works.items():
        seconds[work] += part * took_s


def work_of(stack: tuple[KnownFrame, ...]) -> Work:
    """The work that a stack (root first) shows; ``none`` of what markers divide."""
    if any("saves" in frame.roles for frame in stack):
        return "checkpoint"
    if outside_wait(stack) == "prompt":
        return "prompt"
    kinds = [frame.kind for frame in stack]
    if "compile" in kinds:
        return "compile"
    if "import" in kinds[1:] and imported_by(stack) is not None:
        return "compile" if imported_for_compiler(stack) else "import"
    if stack_phase(kinds) == "data":
        return "first batch"
    if any("network" in frame.roles for frame in stack):
        return "network"
    return "program" if awaits_program(stack) else "none"
