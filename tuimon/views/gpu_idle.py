"""How long the GPU idles in each phase, as far as events, counters and samples bound it together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuimon.session.rows import GpuTimeRow, PhaseRow, PhaseTable
from tuimon.views.format import ms_range, percent_range

if TYPE_CHECKING:
    from tuimon.diagnosis.evidence.gpu.steps import GpuPhase
    from tuimon.session.session import SessionView

#: Bounds that are at most this share of the step apart are a measurement: our choice, half of what makes a GPU idle
#: enough to be no bottleneck.
CLOSE_RATIO = 0.05
#: Bounds that leave at most this share of what they bound out say nothing: it is shown in whole percent.
_NOTHING_RATIO = 0.005

UNKNOWN = "unknown"


def with_idle_bounds(view: SessionView, pid: int) -> tuple[PhaseTable | None, GpuTimeRow | None]:
    """Phases and GPU times of a process with the GPU's idle time as the verdict knows it."""
    table, times = view.phases(pid), view.gpu_time(pid)
    if table is None or times is None:
        return table, times
    from tuimon.diagnosis.evidence.evidence import evidence_of  # noqa: PLC0415  (the first frame shows no times of a GPU)

    gpu = evidence_of(view, pid).gpu_steps
    if gpu is None:
        return table if times.bounded else table._replace(rows=tuple(map(_unbounded, table.rows))), times
    rows = tuple(_bounded(row, gpu.phases[row.name]) if row.name in gpu.phases else row for row in table.rows)
    times = times._replace(idle_ratio=gpu.idle.low, maybe_idle_ratio=gpu.idle.width)
    return table._replace(rows=rows), times


def _bounded(row: PhaseRow, phase: GpuPhase) -> PhaseRow:
    return row._replace(gpu_idle_ms_per_step=phase.idle.low, gpu_maybe_idle_ms_per_step=phase.idle.width)


def _unbounded(row: PhaseRow) -> PhaseRow:
    if row.gpu_ms_per_step is None:
        return row
    return row._replace(gpu_maybe_idle_ms_per_step=row.gpu_ms_per_step - (row.gpu_idle_ms_per_step or 0.0))


def idle_bounds(row: PhaseRow) -> tuple[float, float] | None:
    """How long the GPU idles in a phase's span at least and at most, in ms a step; None without GPU times."""
    if row.gpu_ms_per_step is None or row.gpu_idle_ms_per_step is None:
        return None
    low_ms = min(row.gpu_idle_ms_per_step, row.gpu_ms_per_step)
    return low_ms, min(low_ms + (row.gpu_maybe_idle_ms_per_step or 0.0), row.gpu_ms_per_step)


def measured_idle_ms(row: PhaseRow, step_ms: float) -> float | None:
    """How long the GPU idles in a phase; None where the bounds are not close to each other."""
    bounds = idle_bounds(row)
    if bounds is None or bounds[1] - bounds[0] > CLOSE_RATIO * step_ms or _says_nothing(*bounds, row.gpu_ms_per_step):
        return None
    return sum(bounds) / 2


def idle_text(row: PhaseRow) -> str | None:
    """``6.1–25.4 ms`` or ``unknown``, of a phase's span; None without one."""
    bounds = idle_bounds(row)
    return _text(*bounds, row.gpu_ms_per_step, "–") if bounds is not None else None


def idle_text_of(phase: dict[str, Any]) -> str | None:  # Any: a phase of the report's JSON
    """``6.1 to 25.4 ms``, ``up to 4.0 ms``, or ``unknown``."""
    if "gpu_idle_ms_low" not in phase:
        return None
    return _text(phase["gpu_idle_ms_low"], phase["gpu_idle_ms_high"], phase["gpu_ms_per_step"], " to ")


def _text(low_ms: float, high_ms: float, span_ms: float | None, to: str) -> str | None:
    if not span_ms:
        return None
    return UNKNOWN if _says_nothing(low_ms, high_ms, span_ms) else ms_range(low_ms, high_ms, to)


def idle_share_text(times: GpuTimeRow) -> str:
    """``31–44 %`` of the GPU's time in steps, at least and at most; ``unknown``."""
    low, high = times.idle_ratio, min(times.idle_ratio + times.maybe_idle_ratio, 1.0)
    return UNKNOWN if _says_nothing(low, high, 1.0) else percent_range(low, high)


def _says_nothing(low: float, high: float, whole: float | None) -> bool:
    return bool(whole) and high - low >= (1.0 - _NOTHING_RATIO) * (whole or 0.0)
