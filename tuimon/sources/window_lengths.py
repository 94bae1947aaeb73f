"""Lengths of windows: with many ranks, those out of focus have longer ones once their steps are steady.

A record costs the monitor some 0.3 ms, however long its window. With 64 ranks, windows of eight intervals in place of
one save more than half of that; the sums are the same.
"""

from __future__ import annotations

#: Up to this many ranks, all windows are one interval long; with more, two intervals; with more than twice as many,
#: four; ...
_FEW_RANKS = 8
#: No window is longer, whatever the interval: a rank's figures, and the verdict on many ranks, are at most this old,
#: and a hang is reported in time.
LONGEST_S = 8.0
#: Seconds for which a rank makes steps before its windows grow: its start and its warm-up are of most interest.
SETTLING_S = 10.0


def longest_intervals(ranks: int, interval_s: float) -> int:
    """How many intervals a window of a rank out of focus may have; of 1 s, up to 8: 1 with 8 ranks, 2 with 16 ..."""
    intervals = 1
    while intervals * _FEW_RANKS < ranks and 2 * intervals * interval_s <= LONGEST_S:
        intervals *= 2
    return intervals


def stride_of(count: int, most: int) -> int:
    """The smallest power of two that has at most this many multiples among ``count`` consecutive numbers."""
    stride = 1
    while stride * most < count:
        stride *= 2
    return stride


class WindowEnds:
    """The ends of one ring's windows: multiples of their length, so that the windows of all ranks line up."""

    def __init__(self, interval_ns: int) -> None:
        self.longest = 1  # intervals of a window at most; for whoever knows how many ranks there are
        self._interval_ns = interval_ns
        self._grown = 1

    def of(self, begin_ns: int) -> int:
        """The end of the window that begins then."""
        length_ns = self._interval_ns * min(self._grown, self.longest)
        return (begin_ns // length_ns + 1) * length_ns

    def intervals(self, begin_ns: int, end_ns: int) -> int:
        """How many intervals a window covers."""
        return max(1, round((end_ns - begin_ns) / self._interval_ns))

    def note_window(self, *, is_calm: bool) -> None:
        """Choose the length of the next window: up to twice as long if this one was calm, else one interval."""
        self._grown = min(2 * self._grown, self.longest) if is_calm else 1
