"""The GPUs of a run in a few words, and how long they idle in each phase: for the title line and for headless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tuimon.records import Gpu
from tuimon.session.gpu_time import GpuTimeRow
from tuimon.session.gpus import GpuRow
from tuimon.session.phase_table import PhaseRow, PhaseTable
from tuimon.views.format import ABSENT, ms, ms_range, percent, percent_range, says_nothing

if TYPE_CHECKING:
    from tuimon.session.session import SessionView

#: Figures are old after three windows, but not before so long: the driver may be polled only every 5 s.
STALE_S = 8.0
_STALE_WINDOWS = 3
#: With more GPUs than this a record covers several windows.
_GPUS_A_WINDOW = 2
#: Bounds that are at most this share of the step apart are a measurement: our choice, half of what makes a GPU idle
#: enough to be no bottleneck.
CLOSE_RATIO = 0.05

UNKNOWN = "unknown"


def with_idle_bounds(view: SessionView, pid: int) -> tuple[PhaseTable | None, GpuTimeRow | None]:
    """Phases and GPU times of a process with the GPU's idle time as the verdict knows it."""
    table, times = view.phases(pid), view.gpu_time(pid)
    if table is None or times is None:
        return table, times
    from tuimon.diagnosis.evidence.evidence import evidence_of  # noqa: PLC0415  (the first frame shows no times of a GPU)

    gpu = evidence_of(view, pid).gpu.steps
    if gpu is None:
        return table if times.bounded else table._replace(rows=tuple(map(_unbounded, table.rows))), times
    rows = tuple(
        row._replace(gpu_idle_ms_per_step=phase.idle.low, gpu_maybe_idle_ms_per_step=phase.idle.width)
        if (phase := gpu.phases.get(row.name)) is not None
        else row
        for row in table.rows
    )
    times = times._replace(idle_ratio=gpu.idle.low, maybe_idle_ratio=gpu.idle.width)
    return table._replace(rows=rows), times


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
    if bounds is None or bounds[1] - bounds[0] > CLOSE_RATIO * step_ms or says_nothing(*bounds, row.gpu_ms_per_step):
        return None
    return sum(bounds) / 2


def idle_text(bounds: tuple[float, float] | None, span_ms: float | None, to: str = "–") -> str | None:
    """``6.1–25.4 ms`` or ``unknown``, of a phase's span; None without one."""
    if bounds is None or not span_ms:
        return None
    return UNKNOWN if says_nothing(*bounds, span_ms) else ms_range(*bounds, to)


def idle_share_text(times: GpuTimeRow) -> str:
    """``31–44 %`` of the GPU's time in steps, at least and at most; ``unknown``."""
    low, high = times.idle_ratio, min(times.idle_ratio + times.maybe_idle_ratio, 1.0)
    return UNKNOWN if says_nothing(low, high) else percent_range(low, high)


def stale_after_s(gpus: Sequence[GpuRow], interval_s: float) -> float:
    """The age from which a GPU's figures are shown as old."""
    used = sum(gpu.used_by_run for gpu in gpus)
    return max(STALE_S, _STALE_WINDOWS * interval_s * -(-used // _GPUS_A_WINDOW))


def gpu_text(gpus: Sequence[GpuRow], interval_s: float = 1.0) -> str | None:
    """``GPU 97 % · tensor 12 %`` of the GPUs that the run uses, or of all where that is not known; None if none is.

    Of a GPU that is cut into MIG instances only these count.
    """
    used = [gpu for gpu in gpus if gpu.used_by_run] or gpus
    cut = {gpu.latest.parent_uuid for gpu in used}
    used = [gpu for gpu in used if gpu.latest.uuid not in cut]
    fresh = [gpu for gpu in used if gpu.stale_s < stale_after_s(gpus, interval_s)]
    busy, tensor = spread(map(_busy, fresh)), spread(gpu.figures.tensor_ratio for gpu in fresh)
    if busy == ABSENT:
        return None
    name = f"{len(used)} GPUs" if len(used) > 1 else "GPU"
    name += " SM" * all(map(shows_sms, fresh))
    return f"{name} {busy}" + (f" · tensor {tensor}" if tensor != ABSENT else "")


def lead_progress(times: GpuTimeRow | None) -> str | None:
    """``lead 38.0 ms idle 12–20%``: how far launches run ahead at a backward, and what of its time the GPU idles."""
    if times is None:
        return None
    medians = [lead.median_us for lead in times.leads if lead.boundary == "backward begin"]
    lead = f"lead {ms(medians[0] / 1000)}" if medians and medians[0] is not None else ""
    idle = f"idle {idle_share_text(times).replace(' ', '')}" if times.idle_ratio else ""
    return " ".join(filter(None, (lead, idle))) or None


def memory_ratio(gpu: Gpu) -> float | None:
    """The share of a GPU's memory that is in use."""
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return used / total if used is not None and total else None


def spread(ratios: Iterable[float | None]) -> str:
    """``43–97 %``: the lowest and the highest known ratio."""
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return ABSENT
    least, most = percent(min(known)), percent(max(known))
    return most if least == most else f"{least.removesuffix(' %')}–{most}"


def _busy(gpu: GpuRow) -> float | None:
    """Its utilisation; of a MIG instance without one, the activity of its multiprocessors."""
    return gpu.figures.sm_ratio if shows_sms(gpu) else gpu.figures.util_ratio


def shows_sms(gpu: GpuRow) -> bool:
    """True for a MIG instance whose utilisation is not known."""
    return gpu.latest.parent_uuid is not None and gpu.figures.util_ratio is None
