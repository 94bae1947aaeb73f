"""Whether a series grows, or only varies: Mann and Kendall's rank test, which holds for any distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from tuimon.diagnosis.threshold import Threshold

GROWTH_SIGMAS = Threshold(
    4.0,
    "standard deviations by which the rank test must exceed what a series without a trend gives, to count as growth",
    "our choice, by simulation (test_drift): at most 1 % of courses of 300 s (noise, warm-up, jumps, sawteeth) count as"
    " growth when tested every second",
)

#: Points that are tested: a longer series is reduced to medians, which bounds the pairs to compare to a thousand.
_MOST_POINTS = 48


class _Rank(NamedTuple):
    """Of the pairs of a series: those that rise less those that fall, and the variance of that without a trend."""

    rising: int
    variance: float


def grows(series: Sequence[float]) -> bool:
    """Whether a series grows, not in one jump but before and after its largest change as well.

    Two rank tests must agree: of the whole series, and of its two parts together. So (1, 1, 1, 3, 3, 3) does not grow
    (the parts are flat), as little as (1, 2, 3, 1, 2, 3); a long enough (1, 2, 3, ..., 20) does. Source: Mann (1945),
    Kendall (1975); the test of several parts is that of Hirsch and Slack (1984).
    """
    points = _reduced(series)
    if len(points) < 2 or _sigmas(_rank(points)) < GROWTH_SIGMAS:
        return False
    change = _largest_change(points)
    before, after = _rank(points[:change]), _rank(points[change:])
    return _sigmas(_Rank(before.rising + after.rising, before.variance + after.variance)) >= GROWTH_SIGMAS


def _reduced(series: Sequence[float]) -> list[float]:
    number = min(len(series), _MOST_POINTS)
    return [median(series[i * len(series) // number : (i + 1) * len(series) // number]) for i in range(number)]


def _rank(points: Sequence[float]) -> _Rank:
    number = len(points)
    rising = sum((y > x) - (y < x) for i, x in enumerate(points) for y in points[i + 1 :])
    return _Rank(rising, number * (number - 1) * (2 * number + 5) / 18)


def _sigmas(rank: _Rank) -> float:
    return (rank.rising - 1) / math.sqrt(rank.variance) if rank.variance else 0.0


def _largest_change(points: Sequence[float]) -> int:
    """Where to part a series so that the means of the parts differ most, by least squares: where the later begins."""

    def between(part: int) -> float:
        difference = sum(points[:part]) / part - sum(points[part:]) / (len(points) - part)
        return difference * difference * part * (len(points) - part)

    return max(range(1, len(points)), key=between)
