"""How much faster the later side is, and how sure that is."""

from __future__ import annotations

import math
from statistics import fmean

from tuimon.diagnosis.comparison.batches import step_ms
from tuimon.diagnosis.comparison.estimates import difference
from tuimon.diagnosis.comparison.result import Outcome, Range
from tuimon.diagnosis.comparison.side import JudgedRun, Runs, log_estimate
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.threshold import SAME_WITHIN, Threshold

STARVED_POWER = Threshold(
    2.0,
    "power of the share of time without such waits, by which steps are at most longer than without other programs",
    "measured beside busy programs on 2 cores: 1.3 to 1.5 for one thread, with or without workers; who has waited"
    " comes back to caches that others have filled",
)
STARVED_IN_PARALLEL = Threshold(
    3.0,
    "the same where several threads share out each operation",
    "measured as above: up to 3 for two threads, as each waits for the other at the end of each operation",
)


def speedup_of(before: Runs, after: Runs, smaller: float = 1.0) -> Range:
    """Time of a step before / after; ``smaller``: how many times fewer samples a step has after.

    Disturbances of a side widen the interval: other programs may have cost anything between nothing and
    ``_taken``, and a run whose step time shifted may have either level.
    """
    one, other = log_estimate(before, step_ms), log_estimate(after, step_ms)
    interval, more = difference(other, one), disturbance(before, after)
    logarithms = (one.value - other.value, interval.low + more.low, interval.high + more.high)
    return Range(*(math.exp(each) / smaller for each in logarithms))


def disturbance(before: Runs, after: Runs) -> Interval:
    """By how much the ends of an interval of the speedup's logarithm move, for what may have disturbed a side."""
    taken = _taken(after) - _taken(before)
    shifts = _shifts(before), _shifts(after)
    return Interval(min(taken, 0.0) + shifts[0].low - shifts[1].high, max(taken, 0.0) + shifts[0].high - shifts[1].low)


def outcome_of(speedup: Range) -> Outcome:
    """The outcome that an interval shows."""
    if speedup.low > 1.0:
        return "faster"
    if speedup.high < 1.0:
        return "slower"
    is_narrow = speedup.low >= 1 / (1 + SAME_WITHIN) and speedup.high <= 1 + SAME_WITHIN
    return "same" if is_narrow else "unclear"


def _taken(runs: Runs) -> float:
    """The logarithm of how much longer other programs may have made a step, at most, the mean over runs.

    A run that waited for a core for a share w of the time took (1 - w) ** -p as long. Programs on one GPU take turns:
    beside one that takes 0.4 of its time a step is at most 1 / 0.6 times as long.
    """
    return fmean(
        _power(run) * _log_longer(run.figures.starved.ratio) + _log_longer(run.figures.gpu_taken) for run in runs
    )


def _power(run: JudgedRun) -> float:
    return STARVED_IN_PARALLEL if run.figures.starved.in_parallel else STARVED_POWER


def _log_longer(taken: float) -> float:
    return -math.log1p(-min(taken, 0.99))


def _shifts(runs: Runs) -> Interval:
    """The two levels of a single run that shifted, as logarithms of their ratios to its mean step."""
    shift = runs[0].shift
    if len(runs) > 1 or shift is None:
        return Interval(0.0, 0.0)
    rows = runs[0].steady.rows
    later = sum(row.steps for row in rows[shift.at :]) / sum(row.steps for row in rows)
    earlier = -math.log(1 - later + later * shift.ratio)
    return Interval(*sorted((earlier, earlier + math.log(shift.ratio))))
