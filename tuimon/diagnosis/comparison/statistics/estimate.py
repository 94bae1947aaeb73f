"""An estimate with its uncertainty, and the interval of a difference of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import NamedTuple

from tuimon.diagnosis.comparison.statistics.student import t_quantile


class Interval(NamedTuple):
    """Where a value lies."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether the value may be this."""
        return self.low <= value <= self.high

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


class Estimate(NamedTuple):
    """A value, the variance of its error, and how many degrees of freedom that variance has."""

    value: float
    variance: float
    freedom: float

    def plus(self, variance: float, freedom: float = math.inf) -> Estimate:
        """The estimate with an independent error added; ``freedom``: degrees of freedom of its variance.

        Source: Satterthwaite (1946).
        """
        both = self.variance + variance
        shares = self.variance**2 / self.freedom + variance**2 / freedom
        return Estimate(self.value, both, both * both / shares if shares > 0 else math.inf)


def mean_of_runs(values: Sequence[float]) -> Estimate:
    """The mean over at least two runs, which are independent of one another."""
    return Estimate(fmean(values), variance(values) / len(values), len(values) - 1)


def difference(before: Estimate, after: Estimate, confidence: float = 0.95) -> Interval:
    """Where ``after`` less ``before`` lies, by the t test of Welch (1947)."""
    total = before.variance + after.variance
    middle = after.value - before.value
    if total <= 0:
        return Interval(middle, middle)
    shares = sum(each.variance**2 / each.freedom for each in (before, after))
    freedom = total * total / shares if shares > 0 else math.inf
    half_width = t_quantile((1 + confidence) / 2, freedom) * math.sqrt(total)
    return Interval(middle - half_width, middle + half_width)
