"""The latest windows of samples, apart by whether the step that they show has ended."""

from __future__ import annotations

import math
from collections.abc import Callable

from tuimon.records import Stacks
from tuimon.session.windows import WINDOW_S, Window

#: Most windows that are held of either kind.
_LIMIT = 120
#: From so long on, in seconds, a step under way is apart; markers may come a window later than samples.
_LONG_S = 2.0
#: Without markers also from so many times the longest stretch on that samples of the loop have left out before.
_UNUSUAL = 2.0


class LoopWindow:
    """Windows of the last 30 s of steps, and those of a step that has been under way for long.

    Phases are of steps that have ended. Were samples of an evaluation at the end of a run counted with them, a line of
    it would explain what it has no part in. Without markers the loop goes on as long as windows show it: training has
    bursts, so a stretch without any of it is apart only where it is much longer than those before. Rollouts of 12 s, of
    which each ends in updates, all count; an analysis of 30 s after the last update does not.
    """

    def __init__(self) -> None:
        self._ended: Window[Stacks] = Window(WINDOW_S, limit=_LIMIT)
        self._since: Window[Stacks] = Window(WINDOW_S, limit=_LIMIT)
        self._until_s = math.inf  # when the last step ended, once one has
        self._boundary_s = math.inf  # when the loop came to its latest boundary, where markers show it
        self._longest_s = 0.0  # between windows that show the loop, where only samples do

    def append(self, record: Stacks) -> None:
        """Append a window."""
        (self._ended if _begin_s(record) < self._until_s else self._since).append(record)

    def end_steps(self, t: float) -> None:
        """Markers show that steps, or an evaluation within one, have ended at this moment."""
        self._longest_s = 0.0
        self._end(t)

    def stand_since(self, t: float | None) -> None:
        """Markers show that the loop has come to no boundary since this moment; None: it has, or that is not known."""
        self._boundary_s = math.inf if t is None else t

    def show_loop(self, record: Stacks) -> None:
        """Samples of a window show the loop of a process without markers."""
        if self._until_s < math.inf:
            self._longest_s = max(self._longest_s, _begin_s(record) - self._until_s)
        self._end(record.t)

    def _end(self, t: float) -> None:
        self._until_s = t if self._until_s == math.inf else max(self._until_s, t)
        ended = [record for record in self._since.records if _begin_s(record) < t]
        for record in ended:
            self._ended.append(record)
        del self._since.records[: len(ended)]

    def keep(self, is_kept: Callable[[Stacks], bool]) -> None:
        """Drop all other windows."""
        for window in (self._ended, self._since):
            window.records[:] = [record for record in window.records if is_kept(record)]

    @property
    def step_is_long(self) -> bool:
        """Whether the step under way has been so for long."""
        since = self._since.records
        return bool(since) and _begin_s(since[-1]) - self._until_s >= max(_LONG_S, _UNUSUAL * self._longest_s)

    @property
    def end_s(self) -> float:
        """When the steps have ended, if the one under way is long; else infinite.

        That of a window in which a step ended and the loop then stands still is the moment since which it does.
        """
        return min(self._until_s, self._boundary_s) if self.step_is_long else math.inf

    def of_steps(self) -> list[Stacks]:
        """The windows of steps that have ended, and of one under way that is not long."""
        if not self.step_is_long:
            return self.latest()
        ended = self._ended.records
        return [record for record in ended if middle_s(record) < self._boundary_s] or [*ended]

    def latest(self) -> list[Stacks]:
        """The windows of the last 30 s, whatever they show."""
        records = [*self._ended.records, *self._since.records]
        return [record for record in records if record.t >= records[-1].t - WINDOW_S]


def middle_s(record: Stacks) -> float:
    """The middle of a window: most of its samples are before a later moment."""
    return record.t - record.window_s / 2


def _begin_s(record: Stacks) -> float:
    return record.t - record.window_s
