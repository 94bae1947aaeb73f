"""Estimates of one side of a comparison: of one run by how its batches vary, of several by how runs do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tuimon.diagnosis.comparison.side.judged_run import Figure, JudgedRun
from tuimon.diagnosis.comparison.statistics.correlation import LASTING_FREEDOM
from tuimon.diagnosis.comparison.statistics.estimate import Estimate, mean_of_runs
from tuimon.diagnosis.threshold import Threshold

RUN_DEVIATION = Threshold(
    0.005,
    "standard deviation of the step time from run to run of the same program, which a single run cannot show; how it"
    " varies over seconds within the run is added",
    "our choice: without it two runs of one program would often count as different; make diff-truth tries it",
)
CORES_DEVIATION = Threshold(
    0.04,
    "the same of the part of a step that is computed on CPU cores while no GPU computes",
    "measured: six small trainings of one thread on a virtual machine, eight processes each: 1 to 4 % in four, 8 and"
    " 17 % in two whose matrices fill the caches. Where its memory lies, and who shares the caches, lasts as long as a"
    " process",
)
Runs = Sequence[JudgedRun]


def run_variance(run: JudgedRun) -> float:
    """Variance of the step time between runs of the same program, as a squared ratio, as far as one run shows."""
    return _own_variance(run) + run.lasting_variance


def _own_variance(run: JudgedRun) -> float:
    """The part of it that nothing within a run shows."""
    return 0.0 if run.is_part else RUN_DEVIATION**2 + (CORES_DEVIATION * run.on_cores) ** 2


def log_estimate(runs: Runs, figure_of: Callable[[JudgedRun], Figure]) -> Estimate:
    """The logarithm of a positive figure, which each run may have its own form of."""
    logs = [_logarithm(figure_of(run)) for run in runs]
    if len(runs) == 1:
        return _between_runs(runs[0].estimate(logs[0]), runs[0], runs[0].lasting_variance)
    return mean_of_runs([log(run.level) for log, run in zip(logs, runs, strict=True)])


def _logarithm(figure: Figure) -> Figure:
    return lambda stretch: math.log(max(figure(stretch), 1e-300))


def step_estimate(runs: Runs, figure: Figure, variance: float = 0.0) -> Estimate:
    """A figure of a step on its own scale; ``variance``: of an error that how the batches vary does not show."""
    found = _estimate(runs, figure)
    if len(runs) > 1:
        return found
    return _between_runs(found, runs[0], runs[0].lasting_variance, found.value**2).plus(variance)


def _between_runs(found: Estimate, run: JudgedRun, lasting: float, scale: float = 1.0) -> Estimate:
    """The estimate with the variance between runs of a program: as assumed, and as ``lasting`` shows within a run."""
    return found.plus(_own_variance(run) * scale).plus(lasting * scale, LASTING_FREEDOM)


def _estimate(runs: Runs, figure: Figure) -> Estimate:
    return runs[0].estimate(figure) if len(runs) == 1 else mean_of_runs([figure(run.level) for run in runs])
