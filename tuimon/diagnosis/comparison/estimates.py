"""Estimates and intervals of steps that depend on one another: nothing here knows what a step is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

from tuimon.diagnosis.interval import Interval

_NORMAL = NormalDist()
#: From here on the series below is right within 0.5 % up to the 99.9 % quantile; checked against tables.
_SERIES_FROM = 3.0
#: Neighbours count as correlated by no more than this: beyond, some dozens of values are worth one.
_MOST_CORRELATED = 0.95
#: A deviation that lasts over a twentieth to a tenth of a series is taken to last over all of it.
_LASTING = (0.05, 0.1)
#: Flicker noise has as much variance in each octave of time. A series of 20 to 120 values shows only this part of its
#: lasting variance, with so few degrees of freedom: 0.73 to 0.80, and 1.4 to 1.7, in 1,600 to 9,800 made-up series.
_SEEN_OF_FLICKER = 0.75
LASTING_FREEDOM = 1.5


def t_quantile(probability: float, freedom: float) -> float:
    """The value that Student's t with ``freedom`` degrees stays below with this probability (0.5..1).

    From 3 degrees on by the series of Cornish and Fisher (Abramowitz and Stegun, 26.7.5); below, fractions are rounded
    down, so that intervals come out wider.
    """
    if freedom < 2:
        return math.tan(math.pi * (probability - 0.5))
    if freedom < _SERIES_FROM:
        centred = 2 * probability - 1
        return centred * math.sqrt(2 / (1 - centred * centred))
    z, n = _NORMAL.inv_cdf(probability), min(freedom, 1e9)
    z2 = z * z
    terms = (
        (z2 + 1) / 4,
        ((5 * z2 + 16) * z2 + 3) / 96,
        (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384,
        ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160,
    )
    return z * (1 + sum(term / n**power for power, term in enumerate(terms, 1)))


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


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean of at least two values that are independent of one another, such as runs."""
    return Estimate(fmean(values), variance(values) / len(values), len(values) - 1)


def independent_values(series: Sequence[float]) -> float:
    """How many independent values would give as precise a mean, at least 2: 60 values correlated by 0.5 are worth 20.

    The correlation of neighbours is underestimated in a short series: by (1 + 3 r) / n, which is added (Kendall 1954).
    """
    number = len(series)
    own, next_to = _autocovariance(series, 0), _autocovariance(series, 1)
    found = next_to / own if own > 0 else 0.0
    correlated = min(_MOST_CORRELATED, max(0.0, found + (1 + 3 * max(0.0, found)) / number))
    return max(2.0, number * (1 - correlated) / (1 + correlated))


def difference(before: Estimate, after: Estimate, confidence: float = 0.95) -> Interval:
    """The interval of ``after`` less ``before``, by the t test of Welch (1947)."""
    total = before.variance + after.variance
    middle = after.value - before.value
    if total <= 0:
        return Interval(middle, middle)
    shares = sum(each.variance**2 / each.freedom for each in (before, after))
    freedom = total * total / shares if shares > 0 else math.inf
    half_width = t_quantile((1 + confidence) / 2, freedom) * math.sqrt(total)
    return Interval(middle - half_width, middle + half_width)


def lasting_variance(series: Sequence[float]) -> float:
    """Variance of another such series' mean about this one's, as a ratio squared: 0 if values are independent.

    It is the part of the variance that values share with those a twentieth to a tenth of the series later: what changes
    the speed of a machine for seconds also changes it for minutes, so neither a longer series nor the next one averages
    it out. It is known with LASTING_FREEDOM. Source: ours; of 60 pairs whose speed wanders by 6 % none is called
    different, and 10 without it.
    """
    number, mean = len(series), fmean(series)
    first, last = (max(1, round(part * number)) for part in _LASTING)
    shared = fmean(_autocovariance(series, lag) for lag in range(first, last + 1))
    return max(0.0, shared) / (_SEEN_OF_FLICKER * mean * mean) if mean > 0 else 0.0


def _autocovariance(series: Sequence[float], lag: int) -> float:
    mean = fmean(series)
    deviations = [value - mean for value in series]
    return sum(a * b for a, b in zip(deviations, deviations[lag:], strict=False)) / len(series)
