"""Steps whose time changes for good in the middle of a run, or all the time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean, variance
from typing import NamedTuple

from tuimon.diagnosis.comparison.statistics.correlation import independent_values
from tuimon.diagnosis.evidence.course.trend import grows
from tuimon.diagnosis.threshold import Threshold

SHIFT_STATISTIC = Threshold(
    1.63,
    "largest distance of the running sum of a series from a straight line, in standard deviations of its end,"
    " from which its level has shifted",
    "the 99 % quantile of Kolmogorov's distribution, which a series without a shift keeps below",
)
SHIFT_RATIO = Threshold(
    1.02, "times, by which two levels of a run must differ to be reported", "our choice: less does not change a verdict"
)
#: Batches beside a shift at least.
_BESIDE = 5


class Shift(NamedTuple):
    """A level that shifts: the first value since, and how many times the earlier level the later is."""

    at: int
    ratio: float


def shift_in(series: Sequence[float]) -> Shift | None:
    """Where the level of a series of positive values shifts once; None where it stays.

    Values may depend on their neighbours: the deviation of the sum is that of as many independent ones as they are
    worth once the shift is taken out. Source: the CUSUM test, as by Aue and Horvath (2013), Structural breaks in time
    series.
    """
    number = len(series)
    if number < 2 * _BESIDE:
        return None
    logs = [math.log(value) for value in series]
    mean = fmean(logs)
    running = list(accumulate((value - mean for value in logs), initial=0.0))
    at = max(range(_BESIDE, number - _BESIDE + 1), key=lambda index: abs(running[index]))
    before, since = fmean(logs[:at]), fmean(logs[at:])
    levelled = [value - (before if index < at else since) for index, value in enumerate(logs)]
    spread = variance(levelled) * number / independent_values(levelled)
    ratio = math.exp(since - before)
    if spread <= 0 or max(ratio, 1 / ratio) < SHIFT_RATIO:
        return None
    return Shift(at, ratio) if abs(running[at]) / math.sqrt(spread * number) > SHIFT_STATISTIC else None


def has_trend(series: Sequence[float]) -> bool:
    """Whether a series grows, or falls, all the time."""
    return grows(series) or grows([-value for value in series])


def line_through(series: Sequence[float], first: int = 0) -> list[float]:
    """The straight line closest to a series; ``first``: -5 has it begin five values before."""
    number, middle, mean = len(series), (len(series) - 1) / 2, fmean(series)
    rising = sum((index - middle) * (value - mean) for index, value in enumerate(series))
    slope = rising / max(1.0, sum((index - middle) ** 2 for index in range(number)))
    return [mean + slope * (index - middle) for index in range(first, number)]
