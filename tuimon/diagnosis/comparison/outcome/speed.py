"""How many times as fast the later side is, and where that lies."""

from __future__ import annotations

import math
from functools import reduce
from itertools import product

from tuimon.diagnosis.comparison.outcome.likeness import samples_a_step
from tuimon.diagnosis.comparison.outcome.result import Outcome, Range
from tuimon.diagnosis.comparison.outcome.undisturbed import (
    gpu_waits,
    hidden_waits,
    is_starved,
    power_of,
    undisturbed,
    unsure,
)
from tuimon.diagnosis.comparison.side.sides import Runs, log_estimate
from tuimon.diagnosis.comparison.statistics.estimate import Estimate, Interval, difference
from tuimon.diagnosis.threshold import Threshold

SAME_WITHIN = Threshold(
    0.03, "of the step time, within which two runs count as the same", "our choice: what a minute of each can show"
)


def speedup_of(before: Runs, after: Runs, *, per_sample: bool) -> Range:
    """Time of a step (of a sample) before / after, with what disturbs either side taken into its interval.

    Where other programs took cores, the time that they cost is taken out, as far as it is known. Where the step time
    shifted in the middle of a run, which of the two levels is the program's own is unknown.
    """
    power = power_of([*before, *after])
    disturbed = is_starved([*before, *after])
    versions = list(product(_versions(before), _versions(after)))
    found = {each: _speedup(before, after, each, per_sample) for each in (power.value, power.low, power.high)}
    intervals = [interval for _, interval in found.values()]
    intervals += [_speedup(*sides, power.value, per_sample)[1] for sides in versions if len(versions) > 1]
    plain, as_seen = _speedup(before, after, 0.0, per_sample)
    interval = reduce(Interval.hull, intervals if disturbed else [*intervals, as_seen])
    hidden = [hidden_waits(runs, power.high) + gpu_waits(runs) for runs in (before, after)]
    shift = hidden[1] - hidden[0]
    interval = interval.hull(Interval(interval.low + shift, interval.high + shift))
    return Range(found[power.value][0] if disturbed else plain, math.exp(interval.low), math.exp(interval.high))


def outcome_of(speedup: Range) -> Outcome:
    """The outcome that an interval shows."""
    if speedup.low > 1.0:
        return "faster"
    if speedup.high < 1.0:
        return "slower"
    is_narrow = speedup.low >= 1 / (1 + SAME_WITHIN) and speedup.high <= 1 + SAME_WITHIN
    return "same" if is_narrow else "unclear"


def _versions(runs: Runs) -> list[Runs]:
    """A side, and where it is one run with a shift, as if either level had lasted."""
    return [[level] for level in runs[0].levels()] if len(runs) == 1 else [runs]


def _speedup(before: Runs, after: Runs, power: float, per_sample: bool) -> tuple[float, Interval]:
    sizes = [_sample_count(runs) if per_sample else 1.0 for runs in (before, after)]
    one, other = (_step_estimate(runs, power) for runs in (before, after))
    shift = math.log(sizes[1] / sizes[0])
    middle = difference(other, one)
    return math.exp(one.value - other.value + shift), Interval(middle.low + shift, middle.high + shift)


def _step_estimate(runs: Runs, power: float) -> Estimate:
    return log_estimate(runs, lambda run: undisturbed(run, power)).plus(unsure(runs))


def _sample_count(runs: Runs) -> float:
    return float(samples_a_step(runs[0].figures.facts) or 1)
