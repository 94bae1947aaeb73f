"""When a program was outside its training loop: what its samples show then belongs to no step."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tuimon.records import Stacks, Steps

#: Most windows of steps that are held; those that follow one another and are all outside are one.
_WINDOWS = 64
#: Times of records are rounded.
_TOLERANCE_S = 0.01


class _Window(NamedTuple):
    begin_s: float
    end_s: float
    outside_ratio: float

    def goes_on_at(self, t: float) -> bool:
        """Whether it was outside all the time, to this moment."""
        return self.outside_ratio >= 1.0 and self.end_s >= t - _TOLERANCE_S

    def outside_s(self, begin_s: float, end_s: float) -> float:
        """How long it was outside within a stretch of time, as if that were spread evenly."""
        return max(0.0, min(end_s, self.end_s) - max(begin_s, self.begin_s)) * self.outside_ratio


class OutsideTimes:
    """Windows of steps in which a program was outside its loop, for some of the time or for all of it."""

    def __init__(self) -> None:
        self._windows: deque[_Window] = deque(maxlen=_WINDOWS)

    def add_window(self, record: Steps) -> None:
        """Add a window with ``outside_s``."""
        begin_s = record.t - record.window_s
        ratio = min(1.0, (record.outside_s or 0.0) / record.window_s) if record.window_s else 0.0
        if ratio >= 1.0 and self._windows and self._windows[-1].goes_on_at(begin_s):
            begin_s = self._windows.pop().begin_s
        self._windows.append(_Window(begin_s, record.t, ratio))

    def covers(self, record: Stacks) -> bool:
        """Whether the program was outside for at least half of a window of samples."""
        begin_s = record.t - record.window_s
        outside_s = sum(window.outside_s(begin_s, record.t) for window in self._windows)
        return outside_s > 0 and outside_s >= record.window_s / 2
