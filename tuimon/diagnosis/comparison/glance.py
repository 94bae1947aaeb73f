"""Two runs compared at a glance: the sentence alone, in some milliseconds, for a screen."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.comparison.compare import ready
from tuimon.diagnosis.comparison.headline import headline_of
from tuimon.diagnosis.comparison.outcome.result import Outcome
from tuimon.diagnosis.comparison.outcome.speed import outcome_of, speedup_of
from tuimon.diagnosis.comparison.side.figures import RunFigures
from tuimon.diagnosis.comparison.side.sides import Runs
from tuimon.diagnosis.comparison.statistics.estimate import difference
from tuimon.diagnosis.comparison.table.phases import PARTS, phase_estimate, phase_share


class Glance(NamedTuple):
    """The outcome of a comparison, and in one sentence."""

    outcome: Outcome
    headline: str


def glance(before: RunFigures, after: RunFigures) -> Glance:
    """Raises NotComparable."""
    one, other, _, per_sample = ready([before], [after])
    speedup = speedup_of(one, other, per_sample=per_sample)
    outcome = outcome_of(speedup)
    return Glance(outcome, headline_of(outcome, speedup, _changed(one, other), one, other, per_sample))


def _changed(before: Runs, after: Runs) -> list[str]:
    """The phase whose share of the step changed most, if its time has."""
    name = max(PARTS, key=lambda each: abs(phase_share(after, each) - phase_share(before, each)))
    estimate = phase_estimate(name)
    return [] if difference(estimate(before), estimate(after)).holds(0.0) else [name]
