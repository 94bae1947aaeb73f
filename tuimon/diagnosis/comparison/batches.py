"""A run's steps as batches of about equal time; where its warm-up ends, and what changes for good in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean, quantiles, variance
from typing import NamedTuple

from tuimon.diagnosis.comparison.estimates import independent_values
from tuimon.diagnosis.evidence.course import grows
from tuimon.diagnosis.threshold import SAME_WITHIN, Threshold
from tuimon.session.step_sums import StepStretch, joined

#: Batches at most: so many show how steps depend on each other over a minute and more.
MOST_BATCHES = 240


class Batches(NamedTuple):
    """The steps that a run is judged by."""

    rows: tuple[StepStretch, ...]

    @property
    def steps(self) -> int:
        """How many steps they hold."""
        return round(sum(row.steps for row in self.rows))

    @property
    def seconds(self) -> float:
        """How long they lasted."""
        return sum(row.span_s for row in self.rows)

    def step_ms(self) -> list[float]:
        """The mean step of each batch."""
        return [step_ms(row) for row in self.rows]


def step_ms(row: StepStretch) -> float:
    """The mean step of a stretch with steps."""
    return row.total_ns / row.steps / 1e6


def batches(stretches: Sequence[StepStretch]) -> Batches:
    """Neighbours added up until they are as long as the longest of them, or a 240th of the run, and hold a timed step.

    The rest at the end is part of the last batch. Without a timed step there are no batches.
    """
    if not stretches:
        return Batches(())
    whole_s = sum(row.span_s for row in stretches)
    long_s = max(whole_s / MOST_BATCHES, *(row.span_s for row in stretches))
    found: list[StepStretch] = []
    for row in stretches:
        is_full = found and _is_timed(found[-1]) and found[-1].span_s >= 0.95 * long_s  # windows vary by some ms
        if found and not is_full:
            found[-1] = joined((found[-1], row))
        else:
            found.append(row)
    if len(found) > 1 and (found[-1].span_s < 0.5 * long_s or not _is_timed(found[-1])):
        found[-2:] = [joined(found[-2:])]
    return Batches(tuple(row for row in found if _is_timed(row)))


def _is_timed(row: StepStretch) -> bool:
    return row.steps > 0 and row.total_ns > 0


# -- the warm-up

#: Values further from the quartiles than this many times their distance are outliers (Tukey 1977).
_FENCE = 1.5
#: A beginning that lasts for at least this part of a run belongs to the run, and is no warm-up: one with longer steps
#: (compiling, cold caches), and one with shorter steps, as while a queue fills: that lasts for a few steps, a shift of
#: the machine's speed for long.
_MOST = 1 / 3
_MOST_FASTER = 1 / 10


def warmup_length(series: Sequence[float]) -> int:
    """How many of the first values to leave out: those that are outliers beside the second half, all to one side.

    If that half grows or falls all the time, its line is extended back to the first values.
    For 9 7 5 5 4 5 5 4 the answer is 2. About one run in a hundred loses a value that is no warm-up.
    """
    half = series[len(series) // 2 :]
    if len(half) < 4:
        return 0
    if has_trend(half):
        line = line_through(half, len(half) - len(series))
        series = [value - own for value, own in zip(series, line, strict=True)]
        half = series[len(series) // 2 :]
    lower, _, upper = quantiles(half, n=4)
    fence = _FENCE * (upper - lower)
    above = next((at for at, value in enumerate(_first(series, _MOST)) if value <= upper + fence), 0)
    below = next((at for at, value in enumerate(_first(series, _MOST_FASTER)) if value >= lower - fence), 0)
    return max(above, below)


def _first(series: Sequence[float], part: float) -> Sequence[float]:
    return series[: int(part * len(series)) + 1]


# -- what changes for good

SHIFT_STATISTIC = Threshold(
    1.63,
    "largest distance of the running sum of a series from a straight line, in standard deviations of its end,"
    " from which its level has shifted",
    "the 99 % quantile of Kolmogorov's distribution, which a series without a shift keeps below",
)
#: Batches beside a shift at least.
_BESIDE = 5


class Shift(NamedTuple):
    """A level that shifts: the first value since, and how many times the earlier level the later is."""

    at: int
    ratio: float


def shift_in(series: Sequence[float]) -> Shift | None:
    """The place at which the level of a series of positive values shifts once; None if it stays.

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
    if spread <= 0 or max(ratio, 1 / ratio) < 1 + SAME_WITHIN:
        return None
    return Shift(at, ratio) if abs(running[at]) / math.sqrt(spread * number) > SHIFT_STATISTIC else None


def has_trend(series: Sequence[float]) -> bool:
    """True if a series grows, or falls, all the time."""
    return grows(series) or grows([-value for value in series])


def line_through(series: Sequence[float], first: int = 0) -> list[float]:
    """The straight line closest to a series; ``first``: -5 has it begin five values before."""
    number, middle, mean = len(series), (len(series) - 1) / 2, fmean(series)
    rising = sum((index - middle) * (value - mean) for index, value in enumerate(series))
    slope = rising / max(1.0, sum((index - middle) ** 2 for index in range(number)))
    return [mean + slope * (index - middle) for index in range(first, number)]
