"""A run compared with earlier runs of the same command: how they vary decides what is certain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from tuimon.diagnosis.comparison.estimates import Estimate, Interval, difference, mean_of
from tuimon.diagnosis.comparison.side import CORES_DEVIATION, RUN_DEVIATION
from tuimon.diagnosis.evidence.level import Level
from tuimon.records import EarlierRun
from tuimon.session.steps.history import STACKED


class Since(NamedTuple):
    """How a run's steps differ from those of earlier runs."""

    runs: int
    before: Level  # medians of the earlier runs
    longer: Interval  # step time now / then, at 95 % confidence


def since_earlier(runs: Sequence[EarlierRun], step_ms: float, on_cores: bool) -> Since | None:
    """The comparison with a step of this run; None with fewer than two earlier runs, which show no spread.

    By the larger of the spread of the earlier runs and that between runs of one program in general. ``on_cores``: no
    GPU computes.
    """
    known = [run for run in runs if run.step_ms > 0 and len(run.phases_ms) == len(STACKED)]
    if len(known) < 2 or step_ms <= 0:
        return None
    mean = mean_of([math.log(run.step_ms) for run in known])
    general = RUN_DEVIATION**2 + (CORES_DEVIATION**2 if on_cores else 0.0)
    value = math.log(step_ms)
    measured = difference(mean, Estimate(value, mean.variance * len(known), mean.freedom))
    assumed = difference(Estimate(mean.value, general / len(known), math.inf), Estimate(value, general, math.inf))
    low, high = measured.hull(assumed)
    phases = zip(*(run.phases_ms for run in known), strict=True)
    before = Level(
        sum(run.steps for run in known),
        median(run.step_ms for run in known),
        tuple(median(each) for each in phases),
    )
    return Since(len(known), before, Interval(math.exp(low), math.exp(high)))
