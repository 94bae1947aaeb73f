"""Each quantity of a step beside itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

from tuimon.diagnosis.comparison.outcome.result import Row, Unit
from tuimon.diagnosis.comparison.side.sides import Runs, log_estimate, step_estimate
from tuimon.diagnosis.comparison.statistics.estimate import Estimate, Interval, difference
from tuimon.diagnosis.comparison.table.phases import PARTS, is_estimated, phase_estimate
from tuimon.session.course import StepStretch

#: Rows share one error of 5 %: each is significant by itself at 5 % over their number.
_ERROR = 0.05
#: What is below this share of the step on both sides is no row.
_NO_PHASE = 0.0005


class _Quantity(NamedTuple):
    """How a row is estimated on one side."""

    name: str
    unit: Unit
    estimate: Callable[[Runs], Estimate | None]  # None: not measured
    is_log: bool = False  # estimates are of its logarithm
    estimated: bool = False


def rows_of(before: Runs, after: Runs) -> list[Row]:
    """Step time, throughput, phases, CPU, waits, GPU and memory."""
    least_ms = _NO_PHASE * fmean(run.level.total_ns / run.level.steps / 1e6 for run in (*before, *after))
    measured = []
    for quantity in _quantities((*before, *after)):
        one, other = quantity.estimate(before), quantity.estimate(after)
        if one is not None and other is not None and (quantity.is_log or max(one.value, other.value) > least_ms):
            measured.append((quantity, one, other))
    rows = [_row(quantity, one, other, len(measured)) for quantity, one, other in measured]
    return [*rows, *_at_end(before, after)]


def _quantities(every: Runs) -> list[_Quantity]:
    return [
        _Quantity("step time", "ms", lambda runs: log_estimate(runs, lambda _: _step_ms), is_log=True),
        _Quantity("throughput", "1/s", lambda runs: log_estimate(runs, lambda _: _steps_per_s), is_log=True),
        *(_Quantity(name, "ms", phase_estimate(name), estimated=is_estimated(name, every)) for name in PARTS),
        _Quantity("eval", "ms", lambda runs: step_estimate(runs, lambda s: s.eval_ns / s.steps / 1e6)),
        _Quantity("CPU time", "ms", lambda runs: step_estimate(runs, lambda s: s.cpu_ns / s.steps / 1e6)),
        _Quantity("waits for a core", "ms", lambda runs: step_estimate(runs, lambda s: s.waited_ns / s.steps / 1e6)),
    ]


def _row(quantity: _Quantity, one: Estimate, other: Estimate, number: int) -> Row:
    interval, strict = difference(one, other), difference(one, other, 1 - _ERROR / number)
    before, after = one.value, other.value
    if quantity.is_log:
        before, after = math.exp(one.value), math.exp(other.value)
        interval = Interval(before * math.expm1(interval.low), before * math.expm1(interval.high))
    elif before >= 0:
        interval = Interval(max(interval.low, -before), interval.high)  # nothing takes less than no time
    significant = not strict.holds(0.0)
    change = after - before
    return Row(quantity.name, quantity.unit, before, after, change, *interval, significant, quantity.estimated)


def _step_ms(stretch: StepStretch) -> float:
    return stretch.total_ns / stretch.steps / 1e6


def _steps_per_s(stretch: StepStretch) -> float:
    return stretch.steps / max(stretch.span_s, 1e-9)


def _at_end(before: Runs, after: Runs) -> list[Row]:
    """What each run has one figure of: how much it varies is unknown."""
    found = []
    fields: tuple[tuple[str, Unit, str], ...] = (
        ("GPU utilisation", "%", "gpu_percent"),
        ("host memory", "bytes", "rss_bytes"),
        ("GPU memory", "bytes", "gpu_bytes"),
    )
    for name, unit, field in fields:
        sides = ([getattr(run.figures, field) for run in runs] for runs in (before, after))
        one, other = ([size for size in side if size is not None] for side in sides)
        if one and other:
            found.append(Row(name, unit, fmean(one), fmean(other), fmean(other) - fmean(one)))
    return found
