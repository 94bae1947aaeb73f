"""The GPUs of a run in a few words, and their idle time in each phase: for the title line and for headless."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.session.gpu_time import GpuTimeRow
from tuimon.session.gpus import GpuRow
from tuimon.views.format import ABSENT, ms, ms_range, percent, percent_range, says_nothing, spread_text
from tuimon.views.report_types import Phase

#: The counters of a GPU that have a chart, and their names.
CHARTED = {"util_ratio": "util", "sm_ratio": "SM", "tensor_ratio": "tensor", "dram_ratio": "DRAM"}
UNKNOWN = "unknown"


def idle_text(phase: Phase, to: str = "–") -> str | None:
    """The GPU's idle time in a phase, ``6.1–25.4 ms`` or ``unknown``; None without a span on the GPU's clock."""
    low_ms, high_ms, span_ms = phase.gpu_idle_ms_low, phase.gpu_idle_ms_high, phase.gpu_ms_per_step
    if low_ms is None or high_ms is None or not span_ms:
        return None
    return UNKNOWN if says_nothing(low_ms, high_ms, span_ms) else ms_range(low_ms, high_ms, to)


def idle_share_text(times: GpuTimeRow) -> str:
    """The GPU's idle share of its time in steps, at least and at most: ``31–44 %``, or ``unknown``."""
    return UNKNOWN if says_nothing(*times.idle) else percent_range(*times.idle)


def gpu_text(gpus: Sequence[GpuRow]) -> str | None:
    """``GPU 97 % · tensor 12 %`` of the GPUs that the run uses, or of all if these are unknown; None without figures.

    If a GPU is cut into MIG instances, only the instances count.
    """
    used = [gpu for gpu in [gpu for gpu in gpus if gpu.used_by_run] or gpus if not gpu.is_divided]
    fresh = [gpu for gpu in used if not gpu.is_old]
    busy = spread_text(percent(_busy(gpu)) for gpu in fresh)
    tensor = spread_text(percent(gpu.figures.tensor_ratio) for gpu in fresh)
    if busy == ABSENT:
        return None
    name = f"{len(used)} GPUs" if len(used) > 1 else "GPU"
    name += " SM" * all(map(shows_sms, fresh))
    return f"{name} {busy}" + (f" · tensor {tensor}" if tensor != ABSENT else "")


def lead_progress(times: GpuTimeRow | None) -> str | None:
    """``launches 38.0 ms ahead  GPU idle 12–20%``: before backward, and the GPU's idle share."""
    if times is None:
        return None
    before = times.lead("backward begin")
    lead = f"launches {ms(before.median_us / 1000)} ahead" if before and before.median_us is not None else ""
    idle = f"GPU idle {idle_share_text(times).replace(' ', '')}" if times.idle.low else ""
    return "  ".join(filter(None, (lead, idle))) or None


def _busy(gpu: GpuRow) -> float | None:
    """A GPU's utilisation; if a MIG instance reports none, the activity of its multiprocessors."""
    return gpu.figures.sm_ratio if shows_sms(gpu) else gpu.figures.util_ratio


def shows_sms(gpu: GpuRow) -> bool:
    """True for a MIG instance whose utilisation is not known."""
    return gpu.latest.parent_uuid is not None and gpu.figures.util_ratio is None
