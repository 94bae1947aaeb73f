"""The exclusive phases of a step, each with its part of the time that only stack samples divide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

from tuimon.diagnosis.comparison.side.judged_run import JudgedRun
from tuimon.diagnosis.comparison.side.sides import Runs, step_estimate
from tuimon.diagnosis.comparison.statistics.estimate import Estimate, mean_of_runs
from tuimon.records import BETWEEN
from tuimon.session.course import StepStretch
from tuimon.session.steps.totals import Totals

PARTS = ("data", "forward", "backward", "optimizer", "other")
#: A phase is an estimate where samples decide on more of the step than this, as in the session's tables.
_ESTIMATED = 0.01


class _Part(NamedTuple):
    """A phase's part of the time between, and the standard deviation of that."""

    part: float
    deviation: float


def phase_estimate(name: str) -> Callable[[Runs], Estimate]:
    """What a phase takes of a step, in ms."""

    def estimate(runs: Runs) -> Estimate:
        parts = [_part(run, name) for run in runs]
        if len(runs) > 1:
            return mean_of_runs([_ms(run.level, name, each.part) for run, each in zip(runs, parts, strict=True)])
        level, own = runs[0].level, parts[0]
        of_split = own.deviation * level.between_ns / level.steps / 1e6
        return step_estimate(runs, lambda stretch: _ms(stretch, name, own.part), of_split * of_split)

    return estimate


def phase_share(runs: Runs, name: str) -> float:
    """A phase's share of the step (0..1), the mean over runs."""
    return fmean(
        _ms(run.level, name, _part(run, name).part) * run.level.steps * 1e6 / run.level.total_ns for run in runs
    )


def evaluation_part(runs: Runs) -> float:
    """Evaluation, which is beside the steps, as a part of their time."""
    return sum(run.level.eval_ns for run in runs) / max(1.0, sum(run.level.total_ns for run in runs))


def is_estimated(name: str, runs: Runs) -> bool:
    """Whether stack samples decide on more than a hundredth of the step in any of the runs."""
    return any(_part(run, name).part * run.level.between_ns > _ESTIMATED * run.level.total_ns for run in runs)


def _ms(stretch: StepStretch, name: str, part: float) -> float:
    own: float = getattr(stretch, f"{name}_ns")
    return (own + part * stretch.between_ns) / stretch.steps / 1e6


def _part(run: JudgedRun, name: str) -> _Part:
    split, level = run.figures.split, run.level
    if split is None or not split.samples:
        return _Part(float(name == "forward"), 0.0)
    phases = {BETWEEN: round(level.between_ns)}
    phases |= {each: round(getattr(level, f"{each}_ns")) for each in PARTS}
    whole = split.fitted(Totals(phases=Counter(phases)))
    return _Part(whole.shares.get(name, 0.0), whole.error(name) / 1.96)
