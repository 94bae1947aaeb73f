"""Growth of a series, by Mann and Kendall's rank test, which holds for any distribution; and lasting jumps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import median, quantiles

from msgspec import Struct

from tuimon.diagnosis.threshold import Threshold

GROWTH_SIGMAS = Threshold(
    4.0,
    "standard deviations by which the rank test must exceed what a series without a trend gives, to count as growth",
    "our choice, by simulation (test_drift): at most 1 % of courses of 300 s (noise, warm-up, jumps, sawteeth) count as"
    " growth when tested every second",
)
JUMP_RATIO = Threshold(
    1.25,
    "times the median before, from which a lasting jump in step time is reported",
    "our choice: a quarter is more than what others on a machine change; the outer tenths must not overlap either",
)
JUMP_AT_ONCE = Threshold(
    0.75,
    "part of a jump (of its logarithm) that lies between the eight windows before it and the eight after it",
    "our choice, by simulation (test_jump): at most 1 % of courses of 300 s (noise, slopes, sawteeth) count as a jump"
    " when tested every third second",
)
JUMP_LASTS = Threshold(
    60, "windows since a jump, from which it is lasting", "our choice: most evaluations and checkpoints are shorter"
)
#: Windows before a jump at least, and those beside it that must differ already.
_BEFORE, _NEAR = 20, 8

#: Points that are tested: a longer series is reduced to medians, which bounds the pairs to compare to a thousand.
_MOST_POINTS = 48


class _Rank(Struct, frozen=True, gc=False):
    """Pairs of a series that rise less those that fall, and the variance of that count without a trend."""

    rising: int
    variance: float


def grows(series: Sequence[float]) -> bool:
    """True if a series grows, not in one jump but before and after its largest change as well.

    Two rank tests must agree: of the whole series, and of its two parts together. So (1, 1, 1, 3, 3, 3) does not grow
    (the parts are flat), as little as (1, 2, 3, 1, 2, 3); a long enough (1, 2, 3, ..., 20) does. Source: Mann (1945),
    Kendall (1975); the test of several parts is that of Hirsch and Slack (1984).
    """
    points = _reduced(series)
    if len(points) < 2 or _sigmas(_rank(points)) < GROWTH_SIGMAS:
        return False
    change = _change_point(points)
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


def jump_in(series: Sequence[float]) -> int | None:
    """The first window after which a series has risen at once and for good; None where it has not.

    Of 20 and more windows of about 100 ms, and 60 of about 200 ms, it is the first of these.
    """
    if len(series) < _BEFORE + JUMP_LASTS or min(series) <= 0.0:
        return None
    logs = [math.log(value) for value in series]
    at = _change_point(logs)
    if at < _BEFORE or len(series) - at < JUMP_LASTS:
        return None
    before, since = series[:at], series[at:]
    rise = math.log(median(since) / median(before))
    if rise < math.log(JUMP_RATIO) or median(since[-_NEAR:]) < JUMP_RATIO * median(before):
        return None
    if median(logs[at : at + _NEAR]) - median(logs[at - _NEAR : at]) < JUMP_AT_ONCE * rise:
        return None
    return at if quantiles(since, n=10)[0] > quantiles(before, n=10)[-1] else None


def _change_point(series: Sequence[float]) -> int:
    """The index that divides a series so that the means of both parts differ most, by least squares."""
    sums = list(accumulate(series, initial=0.0))
    whole, number = sums[-1], len(series)

    def between(part: int) -> float:
        difference = sums[part] / part - (whole - sums[part]) / (number - part)
        return difference * difference * part * (number - part)

    return max(range(1, number), key=between)
