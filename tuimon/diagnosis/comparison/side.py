"""One side of a comparison: its runs made ready, and estimates of what their steps take.

The estimates of one run rest on how its blocks of time vary, those of several on how the runs vary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.comparison.batches import (
    Batches,
    Shift,
    batches,
    has_trend,
    line_through,
    shift_in,
    step_ms,
    warmup_length,
)
from tuimon.diagnosis.comparison.estimates import LASTING_FREEDOM, Estimate, lasting_variance, mean_of
from tuimon.diagnosis.comparison.figures import RunFigures
from tuimon.diagnosis.threshold import Threshold
from tuimon.session.step_sums import StepStretch, joined

RUN_DEVIATION = Threshold(
    0.005,
    "standard deviation of the step time from run to run of the same program, which a single run cannot show",
    "our choice: without it two runs of one program would often count as different; make truth KIND=diff tries it",
)
CORES_DEVIATION = Threshold(
    0.04,
    "the same of the part of a step that is computed on CPU cores while no GPU computes",
    "measured: six small trainings of one thread on a virtual machine, eight processes each: 1 to 4 % in four, 8 and"
    " 17 % in two whose matrices fill the caches. Where its memory lies, and who shares the caches, lasts as long as a"
    " process",
)
#: Fewer batches do not show how they vary.
LEAST_BATCHES = 8
#: Blocks of a run, so long that a block depends little on the one before. Source: Schmeiser (1982), Batch size effects
#: in the analysis of simulation output. Of 300 pairs of 60 batches correlated by 0 (0.5, 0.7) that do not differ, 4.7 %
#: (5.3 %, 7 %) are called different before the noise between runs is added.
_BLOCKS = 5

#: A figure of a stretch.
Figure = Callable[[StepStretch], float]


class JudgedRun(Struct, frozen=True, dict=True):
    """The part of a run that is compared: without its warm-up."""

    figures: RunFigures
    steady: Batches
    warmup_s: float
    trend: tuple[float, ...] | None = None  # of the mean step, in ms by batch

    @property
    def is_long_enough(self) -> bool:
        """True if it has batches enough for an interval."""
        return len(self.steady.rows) >= LEAST_BATCHES

    @cached_property
    def shift(self) -> Shift | None:
        """The place at which the step time changed for good."""
        return shift_in(self.steady.step_ms()) if self.trend is None else None

    @cached_property
    def level(self) -> StepStretch:
        """All of it as one stretch."""
        return joined(self.steady.rows)

    @cached_property
    def blocks(self) -> list[StepStretch]:
        """Stretches of about equal length, without the trend."""
        rows = self._level_rows()
        ends = [len(rows) * at // _BLOCKS for at in range(_BLOCKS + 1)]
        return [joined(rows[begin:end]) for begin, end in pairwise(ends)]

    @property
    def assumed_variance(self) -> float:
        """Variance of the step time from run to run of its program that no run shows, as a squared ratio."""
        return RUN_DEVIATION**2 + (CORES_DEVIATION * self._on_cores) ** 2

    @cached_property
    def lasting_variance(self) -> float:
        """The same, as far as its own steps change slowly."""
        return lasting_variance([step_ms(row) for row in self._level_rows()])

    @property
    def _on_cores(self) -> float:
        """Share (0..1) of its time that computing on CPU cores takes, as far as no GPU computes meanwhile.

        A wait for worker processes counts as theirs.
        """
        busy_ns = self.level.cpu_ns + (self.level.data_ns if self.figures.facts.workers else 0.0)
        gpu_busy = (self.figures.gpu_percent or 0.0) / 100
        return min(1.0, busy_ns / self.level.total_ns) * (1.0 - gpu_busy)

    def _level_rows(self) -> Sequence[StepStretch]:
        if self.trend is None:
            return self.steady.rows
        middle = sum(self.trend) / len(self.trend)
        return [_scaled(row, middle / line) for row, line in zip(self.steady.rows, self.trend, strict=True)]

    def within_steps(self, first: float, last: float) -> JudgedRun:
        """The batches whose steps lie between two numbers of steps, without the line through them."""
        rows = [row for row in self.steady.rows if row.first_step >= first and row.first_step + row.steps <= last]
        steady = Batches(tuple(rows))
        return replace(self, steady=steady, trend=_line(steady) if rows else None)


Runs = Sequence[JudgedRun]


def judged(figures: RunFigures) -> JudgedRun:
    """A run without its warm-up."""
    whole = batches(figures.stretches)
    warmup = warmup_length(whole.step_ms())
    warmup_s = sum(row.span_s for row in whole.rows[:warmup])
    steady = Batches(whole.rows[warmup:])
    trend = _line(steady) if len(steady.rows) >= LEAST_BATCHES and has_trend(steady.step_ms()) else None
    return JudgedRun(figures, steady, warmup_s, trend)


def log_estimate(runs: Runs, figure: Figure) -> Estimate:
    """The logarithm of a positive figure of a step."""
    return _estimate(runs, lambda stretch: math.log(max(figure(stretch), 1e-300)), lambda _: 1.0)


def step_estimate(runs: Runs, figure: Figure, variance: float = 0.0) -> Estimate:
    """A figure of a step; ``variance``: of an error that does not show in how blocks of a single run vary."""
    found = _estimate(runs, figure, lambda value: value * value)
    return found.plus(variance) if len(runs) == 1 else found


def _estimate(runs: Runs, figure: Figure, scale: Callable[[float], float]) -> Estimate:
    """``scale``: of the noise between runs, by the figure's value; that is added where there is only one."""
    if len(runs) > 1:
        return mean_of([figure(run.level) for run in runs])
    run, value = runs[0], figure(runs[0].level)
    found = mean_of([figure(block) for block in run.blocks])._replace(value=value)
    return found.plus(run.assumed_variance * scale(value)).plus(run.lasting_variance * scale(value), LASTING_FREEDOM)


def _line(steady: Batches) -> tuple[float, ...] | None:
    line = line_through(steady.step_ms())
    return tuple(line) if min(line) > 0 else None


def _scaled(row: StepStretch, factor: float) -> StepStretch:
    """A stretch whose steps take so many times as long."""
    times = {name: value * factor for name, value in row._asdict().items() if name.endswith("_ns")}
    return row._replace(**times)
