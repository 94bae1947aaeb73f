"""What a step would take without other programs on the cores.

Where a thread of the training waited for a core for a share w of a batch, its steps took (1 - w) ** -p times as long: p
is 0 where the training did not need that thread just then, 1 where it waited for it, and more where it found its
caches filled by others. p is estimated from batches that waited more and less; what they leave open widens the
interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from statistics import fmean
from typing import NamedTuple

from tuimon.diagnosis.comparison.course.batches import added, step_ms
from tuimon.diagnosis.comparison.side.judged_run import Figure, JudgedRun
from tuimon.diagnosis.comparison.side.sides import Runs
from tuimon.diagnosis.comparison.statistics.correlation import independent_values
from tuimon.diagnosis.threshold import Threshold
from tuimon.session.course import StepStretch

STARVED = Threshold(
    0.02,
    "of the time that a thread waited for a core that other programs had, from which that is reported",
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

POWER_DEVIATION = Threshold(
    0.25,
    "standard deviation of that power from run to run: programs that share a core share its caches too, more or less",
    "measured on stretches of three trainings beside tests and compilers on 2 cores: 0.06, 0.13 and 0.29",
)

#: Batches that are added up before the power is estimated. Windows of steps and of threads begin at different moments,
#: so a second's waits are partly of its neighbours, which draws the estimate towards 0: of trainings beside tests and
#: compilers single batches gave 0.2 to 0.7 where five together gave 0.75 to 1.0, and as much lay between minutes.
_NEIGHBOURS = 5
#: Share of how single batches vary that their waits must explain to be used: errors of these explain no more than the
#: rest, so the estimate is too low by a tenth at most.
_EXPLAINED = 0.9


class Power(NamedTuple):
    """The exponent ``p`` by which waits count, and the bounds that it lies between."""

    value: float
    low: float
    high: float


def power_of(runs: Runs) -> Power:
    """The power of all runs together: a prior, and what the batches of each show."""
    most = STARVED_IN_PARALLEL if any(run.figures.starved.in_parallel for run in runs) else STARVED_POWER
    found, weight = _by_batches(runs)
    before = 16 / (most * most)  # as if it were normally distributed, between 0 and the most in 95 % of all programs
    value = (found * weight + most / 2 * before) / (weight + before)
    half_width = 2 / math.sqrt(weight + before)
    low, high = (min(max(value + sign * half_width, 0.0), most) for sign in (-1, 1))
    return Power(min(max(value, low), high), low, high)


def undisturbed(run: JudgedRun, power: float) -> Figure:
    """The time of a step without the waits that others caused, as far as these count."""
    part = run.figures.starved.part

    def figure(stretch: StepStretch) -> float:
        return stretch.total_ns / stretch.steps * math.exp(-power * _waits(stretch, part))

    return figure


def unsure(runs: Runs) -> float:
    """The variance of the logarithm that others leave in a step without these waits, the mean over runs."""
    waits = [POWER_DEVIATION * _waits(run.level, run.figures.starved.part) for run in runs]
    return sum(each * each for each in waits) / (len(waits) * len(waits))


def hidden_waits(runs: Runs, power: float) -> float:
    """The logarithm of what threads of other processes, such as workers, may have cost beyond these waits, at most."""
    return fmean(power * _hidden(run) for run in runs)


def gpu_waits(runs: Runs) -> float:
    """The logarithm of what waiting for other programs' turns on a GPU may have cost, at most, the mean over runs.

    Programs on one GPU take turns: beside one that takes 0.4 of its time a step is at most 1 / 0.6 times as long.
    """
    return fmean(-math.log1p(-min(run.figures.gpu_taken, 0.99)) for run in runs)


def is_starved(runs: Runs) -> bool:
    """Whether other programs held up a run so much that it is reported."""
    return any(run.figures.starved.ratio >= STARVED for run in runs)


def _waits(stretch: StepStretch, part: float) -> float:
    share = part * stretch.waited_ns / stretch.total_ns if stretch.total_ns else 0.0
    return -math.log1p(-min(share, 0.99))


def _hidden(run: JudgedRun) -> float:
    starved = run.figures.starved
    return max(0.0, -math.log1p(-min(starved.ratio, 0.99)) - _waits(run.level, starved.part))


def _by_batches(runs: Runs) -> tuple[float, float]:
    """The slope of the logarithm of the step over that of its time without waits, within runs; 1 / its variance."""
    fitted = [_fitted(run) for run in runs if run.figures.starved.part]
    spread = sum(fit.spread for fit in fitted)
    if spread <= 0:
        return 0.0, 0.0
    slope = sum(fit.together for fit in fitted) / spread
    variance = sum(fit.spread * fit.variance(slope) for fit in fitted) / (spread * spread)
    return slope, 1 / variance if variance > 0 else 0.0


class _Fit(NamedTuple):
    """A run's batches about their means."""

    waits: Sequence[float]
    logs: Sequence[float]

    @property
    def explained(self) -> float:
        """Share (0..1) of how the logarithms vary that the waits explain: their errors draw the slope no lower."""
        whole = self.spread * sum(log * log for log in self.logs)
        return self.together * self.together / whole if whole > 0 else 0.0

    @property
    def spread(self) -> float:
        return sum(wait * wait for wait in self.waits)

    @property
    def together(self) -> float:
        return sum(wait * log for wait, log in zip(self.waits, self.logs, strict=True))

    def variance(self, slope: float) -> float:
        """Variance of the residuals of a slope, as of independent values."""
        left = [log - slope * wait for wait, log in zip(self.waits, self.logs, strict=True)]
        worth = independent_values(left)
        return sum(value * value for value in left) / max(1.0, worth - 2)


def _together(rows: Sequence[StepStretch]) -> list[StepStretch]:
    """Neighbours added up; what is left over at the end is left out."""
    starts = range(0, len(rows) - _NEIGHBOURS + 1, _NEIGHBOURS)
    return [reduce(added, rows[at : at + _NEIGHBOURS]) for at in starts]


def _fitted(run: JudgedRun) -> _Fit:
    """The fit to a run's batches; to several together where the waits of each explain too little."""
    single = _fit(run, run.steady.rows)
    return single if single.explained >= _EXPLAINED else _fit(run, _together(run.steady.rows))


def _fit(run: JudgedRun, rows: Sequence[StepStretch]) -> _Fit:
    part = run.figures.starved.part
    waits = [_waits(row, part) for row in rows]
    logs = [math.log(step_ms(row)) for row in rows]
    return _Fit([wait - fmean(waits) for wait in waits], [log - fmean(logs) for log in logs])
