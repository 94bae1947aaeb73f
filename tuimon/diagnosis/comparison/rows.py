"""Each quantity beside itself: step time, throughput, the exclusive phases, CPU, waits, GPU, memory, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

from tuimon.diagnosis.comparison.batches import step_ms
from tuimon.diagnosis.comparison.estimates import Estimate, difference, mean_of
from tuimon.diagnosis.comparison.figures import RunFigures
from tuimon.diagnosis.comparison.result import Row, Unit
from tuimon.diagnosis.comparison.side import JudgedRun, Runs, log_estimate, step_estimate
from tuimon.diagnosis.comparison.speed import disturbance
from tuimon.diagnosis.interval import Interval
from tuimon.records import BETWEEN
from tuimon.session.beside_steps import Checkpoints
from tuimon.session.step_sums import StepStretch

PARTS = ("data", "forward", "backward", "optimizer", "other")
#: A phase is an estimate where samples decide on more of the step than this, as in the session's tables.
_ESTIMATED = 0.01
#: Rows share one error of 5 %: each is significant by itself at 5 % over their number.
_ERROR = 0.05
#: A phase below this share of the step on both sides has no row.
_NO_PHASE = 0.0005


class _Quantity(NamedTuple):
    """How a row is estimated on one side."""

    name: str
    unit: Unit
    estimate: Callable[[Runs], Estimate | None]  # None: not measured
    is_log: bool = False  # estimates are of its logarithm
    estimated: bool = False
    disturbed: Interval = Interval(0.0, 0.0)  # by how much the interval's ends move, as the speedup's do


def rows_of(before: Runs, after: Runs) -> list[Row]:
    """Step time, throughput, phases, CPU, waits, GPU, memory, checkpoints."""
    least_ms = _NO_PHASE * fmean(run.level.total_ns / run.level.steps / 1e6 for run in (*before, *after))
    measured = []
    for quantity in _quantities((*before, *after), disturbance(before, after)):
        one, other = quantity.estimate(before), quantity.estimate(after)
        if one is not None and other is not None and (quantity.is_log or max(one.value, other.value) > least_ms):
            measured.append((quantity, one, other))
    rows = [_row(quantity, one, other, len(measured)) for quantity, one, other in measured]
    return [*rows, *_at_end(before, after)]


def _quantities(every: Runs, faster: Interval) -> list[_Quantity]:
    longer = Interval(-faster.high, -faster.low)
    return [
        _Quantity("step time", "ms", lambda runs: log_estimate(runs, step_ms), is_log=True, disturbed=longer),
        _Quantity("throughput", "1/s", lambda runs: log_estimate(runs, _steps_per_s), is_log=True, disturbed=faster),
        *(_Quantity(name, "ms", phase_estimate(name), estimated=is_estimated(name, every)) for name in PARTS),
        _Quantity("eval", "ms", lambda runs: step_estimate(runs, lambda s: s.eval_ns / s.steps / 1e6)),
        _Quantity("CPU time", "ms", lambda runs: step_estimate(runs, lambda s: s.cpu_ns / s.steps / 1e6)),
        _Quantity("waits for a core", "ms", lambda runs: step_estimate(runs, lambda s: s.waited_ns / s.steps / 1e6)),
    ]


def _row(quantity: _Quantity, one: Estimate, other: Estimate, number: int) -> Row:
    interval, strict = (
        Interval(each.low + quantity.disturbed.low, each.high + quantity.disturbed.high)
        for each in (difference(one, other), difference(one, other, 1 - _ERROR / number))
    )
    before, after = one.value, other.value
    if quantity.is_log:
        before, after = math.exp(one.value), math.exp(other.value)
        interval = Interval(before * math.expm1(interval.low), before * math.expm1(interval.high))
    elif before >= 0:
        interval = Interval(max(interval.low, -before), interval.high)  # nothing takes less than no time
    significant = not strict.holds(0.0)
    change = after - before
    return Row(quantity.name, quantity.unit, before, after, change, *interval, significant, quantity.estimated)


def _steps_per_s(stretch: StepStretch) -> float:
    return stretch.steps / max(stretch.span_s, 1e-9)


def _at_end(before: Runs, after: Runs) -> list[Row]:
    """A figure that each run has once: how much it varies is unknown."""
    found = []
    for name, unit, figure in _FIGURES:
        sides = ([figure(run.figures) for run in runs] for runs in (before, after))
        one, other = ([value for value in side if value is not None] for side in sides)
        if one and other:
            found.append(Row(name, unit, fmean(one), fmean(other), fmean(other) - fmean(one)))
    return found


def _of_checkpoints(figure: Callable[[Checkpoints], float | None]) -> Callable[[RunFigures], float | None]:
    return lambda run: figure(run.checkpoints) if run.checkpoints is not None else None


_FIGURES: tuple[tuple[str, Unit, Callable[[RunFigures], float | None]], ...] = (
    ("GPU utilisation", "%", lambda run: run.gpu_percent),
    ("host memory", "bytes", lambda run: run.rss_bytes),
    ("GPU memory", "bytes", lambda run: run.gpu_bytes),
    ("checkpoints", "1", _of_checkpoints(lambda saved: saved.number)),
    ("checkpoint", "ms", _of_checkpoints(lambda saved: saved.each_ms)),
    ("checkpoint size", "bytes", _of_checkpoints(lambda saved: saved.each_bytes)),
    ("checkpoint rate", "bytes/s", _of_checkpoints(lambda saved: saved.bytes_per_s)),
)


# -- phases, with their part of the time that only stack samples divide


class _Part(NamedTuple):
    """A phase's part of the time between, and the standard deviation of that."""

    part: float
    deviation: float


def phase_estimate(name: str) -> Callable[[Runs], Estimate]:
    """The time of a phase in a step, in ms."""

    def estimate(runs: Runs) -> Estimate:
        parts = [_part(run, name) for run in runs]
        if len(runs) > 1:
            return mean_of([_ms(run.level, name, each.part) for run, each in zip(runs, parts, strict=True)])
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
    """True if stack samples decide on more than a hundredth of the step in any of the runs."""
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
    whole = split.with_optimizer(phases)
    return _Part(whole.shares.get(name, 0.0), whole.error(name) / 1.96)
