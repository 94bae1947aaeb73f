"""How many times as fast the later side is, and where that lies."""

from __future__ import annotations

import math
from functools import reduce
from itertools import product
from statistics import fmean

from tuimon.diagnosis.comparison.judged_run import Figure, JudgedRun
from tuimon.diagnosis.comparison.likeness import samples_a_step
from tuimon.diagnosis.comparison.result import Outcome, Range
from tuimon.diagnosis.comparison.sides import Runs, log_estimate
from tuimon.diagnosis.comparison.statistics.estimate import Interval, difference
from tuimon.diagnosis.threshold import Threshold
from tuimon.session.course import StepStretch

SAME_WITHIN = Threshold(
    0.03, "of the step time, within which two runs count as the same", "our choice: what a minute of each can tell"
)
STARVED = Threshold(
    0.02,
    "of the time that a thread waited for a core that other programs had, from which that is said",
    "our choice: less than what two runs are the same within",
)
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


def speedup_of(before: Runs, after: Runs, *, per_sample: bool) -> Range:
    """Time of a step (of a sample) before / after, with what disturbs either side taken into its interval.

    Where other programs took cores from one side more than from the other, its steps may be longer by nothing, or by a
    power of the time it waited: the truth is between. Where the step time shifted in the middle of a run, which of the
    two levels is the program's own is unknown.
    """
    value, interval = _speedup(before, after, _step_ns, per_sample)
    versions = list(product(_versions(before), _versions(after)))
    if len(versions) > 1:
        interval = reduce(Interval.hull, (_speedup(*each, _step_ns, per_sample)[1] for each in versions))
    shift = _undisturbed(before) - _undisturbed(after)
    interval = interval.hull(Interval(interval.low + shift, interval.high + shift))
    return Range(value, math.exp(interval.low), math.exp(interval.high))


def outcome_of(speedup: Range) -> Outcome:
    """What an interval says."""
    if speedup.low > 1.0:
        return "faster"
    if speedup.high < 1.0:
        return "slower"
    is_narrow = speedup.low >= 1 / (1 + SAME_WITHIN) and speedup.high <= 1 + SAME_WITHIN
    return "same" if is_narrow else "unclear"


def _undisturbed(runs: Runs) -> float:
    """The logarithm of the part of a step that is left without other programs, at least; the mean over runs."""
    return fmean(_power(run) * math.log1p(-min(run.figures.starved.ratio, 0.99)) for run in runs)


def _power(run: JudgedRun) -> float:
    return STARVED_IN_PARALLEL if run.figures.starved.in_parallel else STARVED_POWER


def _versions(runs: Runs) -> list[Runs]:
    """A side, and where it is one run with a shift, its parts."""
    return [[part] for part in runs[0].parts()] if len(runs) == 1 else [runs]


def _speedup(before: Runs, after: Runs, figure: Figure, per_sample: bool) -> tuple[float, Interval]:
    sizes = [_sample_count(runs) if per_sample else 1.0 for runs in (before, after)]
    one, other = log_estimate(before, figure), log_estimate(after, figure)
    shift = math.log(sizes[1] / sizes[0])
    middle = difference(other, one)
    return math.exp(one.value - other.value + shift), Interval(middle.low + shift, middle.high + shift)


def _sample_count(runs: Runs) -> float:
    return float(samples_a_step(runs[0].figures.facts) or 1)


def _step_ns(stretch: StepStretch) -> float:
    return stretch.total_ns / stretch.steps
