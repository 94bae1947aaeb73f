"""Readings of a memory that may grow: of a process, or of torch's tensors on a GPU."""

from __future__ import annotations

from array import array
from itertools import pairwise

from msgspec import Struct

#: The time that a growth rate covers, in seconds, from one reading in so many seconds.
SPAN_S = 120.0
_EVERY_S = 2.0
_LEAST_READINGS, _MOST_READINGS = 4, int(SPAN_S / _EVERY_S) + 1
#: Readings from which a growth is steady: those of 16 s.
_STEADY_READINGS = 9
#: Part of the largest rise from one quarter of them to the next that each other must have, and of the whole rate that
#: of the last quarter: our choice. Less is a cache that levels off, or a jump.
_STEADY_PART = 0.6


class Growth(Struct, frozen=True, gc=False):
    """How much a memory holds now, and how fast that has grown."""

    held_bytes: int
    risen_bytes: int
    bytes_per_s: float


class MemoryReadings:
    """The readings of the last two minutes."""

    __slots__ = ("_readings",)

    def __init__(self) -> None:
        self._readings = array("d")  # pairs, of a time and bytes

    def add(self, t: float, held_bytes: int) -> None:
        """Add a reading; one in 2 s is kept."""
        readings = self._readings
        if not readings or t - readings[-2] >= _EVERY_S:
            readings.extend((t, held_bytes))
        while readings[0] < t - SPAN_S or len(readings) > 2 * _MOST_READINGS:
            del readings[:2]

    def growth(self) -> Growth | None:
        """None unless the later half of the readings is all above the earlier half."""
        return _growth(self._pairs())

    def steady_growth(self, since_s: float) -> Growth | None:
        """The growth since a moment; None unless there has been one for 16 s that does not level off.

        The quarters of readings of 1 2 3 ... 12 have medians of 2 5 8 11, which is steady; 1 4 6 7 7.5 levels off, and
        1 1 1 9 9 9 is a jump.
        """
        pairs = [pair for pair in self._pairs() if pair[0] >= since_s]
        if len(pairs) < _STEADY_READINGS:
            return None
        number = len(pairs)
        quarters = (pairs[n * number // 4 : (n + 1) * number // 4] for n in range(4))
        held = [sorted(held for _, held in quarter)[len(quarter) // 2] for quarter in quarters]
        rises = [later - earlier for earlier, later in pairwise(held)]
        if min(rises) <= 0 or min(rises) < _STEADY_PART * max(rises):
            return None
        growth, lately = _growth(pairs), _rate(pairs[3 * number // 4 :])
        return growth if growth is not None and lately >= _STEADY_PART * growth.bytes_per_s else None

    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self._readings[::2], self._readings[1::2], strict=True))


def _growth(pairs: list[tuple[float, float]]) -> Growth | None:
    half = len(pairs) // 2
    if len(pairs) < _LEAST_READINGS or max(held for _, held in pairs[:half]) >= min(held for _, held in pairs[half:]):
        return None  # up and down: a cache, or a loader at work
    first, last = pairs[0][1], pairs[-1][1]
    return Growth(int(last), int(last - first), _rate(pairs))


def _rate(pairs: list[tuple[float, float]]) -> float:
    (from_s, from_bytes), (to_s, to_bytes) = pairs[0], pairs[-1]
    return (to_bytes - from_bytes) / (to_s - from_s)
