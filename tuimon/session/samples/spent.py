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
        self._before: Seconds = defaultdict(float)
        self._frames = frames
        self._early: list[_Window] = []
        self._first: _Window | None = None
        self._has_begun = False
        self._end_s: float | None = None

    def add_window(self, record: Stacks, tid: int) -> None:
        """Fold a window of samples, by its training thread."""
        begin_s = record.t - record.window_s if self._end_s is None else self._end_s
        counts: Counter[str] = Counter()
        for stack in record.stacks:
            if stack.tid == tid:
                counts[work_of(self._frames.stack(stack.frames))] += stack.count
        total = counts.total()
        if not total or record.t <= begin_s:
            return
        self._end_s = record.t
        works = {work: (record.t - begin_s) * n / total for work, n in counts.items()}
        window = _Window(begin_s, record.t, works)
        self._first = self._first or window
        if self._has_begun:
            _add(self.since_step, works)
            return
        self._early.append(window)
        if len(self._early) > _HELD:
            _add(self._before, self._early.pop(0).works)

    def begin(self, t: float) -> None:
        """The loop has begun at a moment."""
        self._has_begun = True
        for window in self._early:
            part = min(1.0, max(0.0, (t - window.begin_s) / (window.end_s - window.begin_s)))
            _add(self._before, window.works, part)
            _add(self.since_step, window.works, 1 - part)
        self._early.clear()

    def end_steps(self, record: Steps) -> None:
        """Steps have ended."""
        if record.count:
            _add(self.in_loop, self.since_step)
            self.since_step.clear()

    @property
    def first_s(self) -> float:
        """When the first window of samples began; infinite without any."""
        return self._first.begin_s if self._first is not None else math.inf

    def before(self, started_s: float, unseen_s: float) -> Seconds:
        """Seconds from the start of the process to its loop; until that begins, all.

        ``unseen_s``: how long a process that it has started was looked at in its place, before the first samples.
        """
        seconds, first = self._before.copy(), self._first
        if first is not None and first.begin_s > started_s:
            _add(seconds, first.works, max(0.0, first.begin_s - started_s - unseen_s) / (first.end_s - first.begin_s))
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
