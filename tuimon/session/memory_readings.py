"""Readings of a memory that may grow: of a process, or of torch's tensors on a GPU."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

#: The time that a growth rate covers, in seconds, from one reading in so many seconds, or a little less: they jitter.
SPAN_S = 120.0
_EVERY_S, _EARLY_S = 2.0, 0.5
_LEAST_READINGS, _MOST_READINGS = 4, int(SPAN_S / _EVERY_S) + 1
#: Readings from which a growth is steady: those of 16 s.
_STEADY_READINGS = 9
#: Part of the largest rise a step, from one quarter of them to the next, that each other must have, and of the whole
#: rate that of the last quarter: our choice. Less is a cache that levels off, or a jump.
_STEADY_PART = 0.6
#: Readings from which a growth is going on, and the part of it that the later half of them must have: our choice.
_GOING_ON_READINGS, _GOING_ON_PART = 5, 0.25


class Growth(Struct, frozen=True, gc=False):
    """How much a memory holds now, and how fast that has grown."""

    held_bytes: int
    risen_bytes: int
    bytes_per_s: float


class _Reading(NamedTuple):
    t: float
    held_bytes: float
    steps: float  # made until then; 0 if they are not known


class MemoryReadings:
    """The readings of the last two minutes."""

    __slots__ = ("_readings",)

    def __init__(self) -> None:
        self._readings = array("d")  # three numbers each, as in a _Reading

    def add(self, t: float, held_bytes: int, steps: int = 0) -> None:
        """Add a reading; one in 2 s is kept. ``steps``: how many the process has made, where that is known."""
        readings = self._readings
        if not readings or t - readings[-3] >= _EVERY_S - _EARLY_S:
            readings.extend((t, held_bytes, steps))
        while readings[0] < t - SPAN_S or len(readings) > 3 * _MOST_READINGS:
            del readings[:3]

    @property
    def latest_bytes(self) -> int | None:
        """The latest one."""
        return int(self._readings[-2]) if self._readings else None

    def growth(self) -> Growth | None:
        """None unless the later half of the readings is all above the earlier half."""
        return _growth(self._each())

    def growth_going_on(self, since_s: float) -> Growth | None:
        """The growth since a moment, be it slower now; None if it was a jump, or is over."""
        readings = [reading for reading in self._each() if reading.t >= since_s]
        growth = _growth(readings) if len(readings) >= _GOING_ON_READINGS else None
        if growth is None:
            return None
        lately_bytes = readings[-1].held_bytes - readings[len(readings) // 2].held_bytes
        return growth if lately_bytes >= _GOING_ON_PART * growth.risen_bytes else None

    def steady_growth(self, since_s: float) -> Growth | None:
        """The growth since a moment; None unless there has been one for 16 s that does not level off.

        The quarters of readings of 1 2 3 ... 12 have medians of 2 5 8 11, which is steady; 1 4 6 7 7.5 levels off, and
        1 1 1 9 9 9 is a jump. What counts is the rise a step: a leak slows down with the steps.
        """
        readings = [reading for reading in self._each() if reading.t >= since_s]
        if len(readings) < _STEADY_READINGS:
            return None
        number = len(readings)
        quarters = [readings[n * number // 4 : (n + 1) * number // 4] for n in range(4)]
        held = [sorted(reading.held_bytes for reading in quarter)[len(quarter) // 2] for quarter in quarters]
        rises = [later - earlier for earlier, later in pairwise(held)]
        made = [
            later - earlier for earlier, later in pairwise(quarter[len(quarter) // 2].steps for quarter in quarters)
        ]
        if min(made) > 0:
            rises = [rise / steps for rise, steps in zip(rises, made, strict=True)]
        if min(rises) <= 0 or min(rises) < _STEADY_PART * max(rises):
            return None
        growth = _growth(readings)
        return growth if growth is not None and _rate(quarters[-1]) >= _STEADY_PART * _rate(readings) else None

    def _each(self) -> list[_Reading]:
        numbers = self._readings
        return [_Reading(*each) for each in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)]


def _growth(readings: list[_Reading]) -> Growth | None:
    held, half = [reading.held_bytes for reading in readings], len(readings) // 2
    if len(held) < _LEAST_READINGS or max(held[:half]) >= min(held[half:]):
        return None  # up and down: a cache, or a loader at work
    return Growth(int(held[-1]), int(held[-1] - held[0]), (held[-1] - held[0]) / (readings[-1].t - readings[0].t))


def _rate(readings: list[_Reading]) -> float:
    """Bytes a step, or a second."""
    first, last = readings[0], readings[-1]
    return (last.held_bytes - first.held_bytes) / (last.steps - first.steps or last.t - first.t)
