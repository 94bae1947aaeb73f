"""A value known to lie between two ends, such as a share of the step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Interval(NamedTuple):
    """The two ends between which a value lies."""

    low: float
    high: float

    @classmethod
    def around(cls, middle: float, error: float = 0.0) -> Interval:
        """The interval that extends ``error`` to either side of a value."""
        return cls(middle - error, middle + error)

    @classmethod
    def sum_of(cls, parts: Iterable[Interval]) -> Interval:
        """The sum of several values: the sums of their lower and of their upper ends."""
        parts = list(parts)
        return cls(sum(part.low for part in parts), sum(part.high for part in parts))

    def times(self, factor: float) -> Interval:
        """The value times a factor; between 0 and 1, a part of it."""
        return Interval(factor * self.low, factor * self.high)

    def up_to(self, most: float) -> Interval:
        """The value capped at ``most``, such as the time for which its cause lasts."""
        return Interval(min(self.low, most), min(self.high, most))

    def contains(self, value: float) -> bool:
        """True if the value may be this one."""
        return self.low <= value <= self.high

    def overlaps(self, other: Interval) -> bool:
        return self.low <= other.high and other.low <= self.high

    def reconciled(self, other: Interval) -> Interval:
        """The overlap of two intervals; if they contradict each other, the smallest interval that holds both."""
        if self.overlaps(other):
            return Interval(max(self.low, other.low), min(self.high, other.high))
        return Interval(min(self.low, other.low), max(self.high, other.high))

    @property
    def width(self) -> float:
        """The distance between the ends."""
        return self.high - self.low

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def error(self) -> float:
        """The error of the middle: half the width."""
        return self.width / 2


#: Certainly nothing, and certainly everything.
NONE, WHOLE = Interval(0.0, 0.0), Interval(1.0, 1.0)
