"""The GPUs of a run in a few words: for the title line and for headless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuimon.session.rows import GpuRow, GpuTimeRow
from tuimon.views.format import ABSENT, ms, percent

#: Figures older than this are shown as old: GPUs that a run does not use may be asked only every 5 s.
STALE_S = 8.0


def gpu_text(gpus: Sequence[GpuRow]) -> str | None:
    """``GPU 97 % · tensor 12 %`` of the GPUs that the run uses; None where nothing is known of them."""
    busy = _used(gpus)
    util, tensor = spread(_busy(gpu) for gpu in busy), spread(_tensor(gpu) for gpu in busy)
    if util == ABSENT:
        return None
    name = f"{len(busy)} GPUs" if len(busy) > 1 else "GPU"
    return f"{name} {util}" + (f" · tensor {tensor}" if tensor != ABSENT else "")


def gpu_progress(gpus: Sequence[GpuRow]) -> str | None:
    """``gpu 97% 94% tensor 12%``; where it is not known which GPUs the run uses, all of them."""
    shown = _used(gpus) or list(gpus)
    if not shown:
        return None
    text = "gpu " + " ".join(percent(_busy(gpu)).replace(" ", "") for gpu in shown[:8])
    tensor = spread(_tensor(gpu) for gpu in shown)
    return text if tensor == ABSENT else f"{text} tensor {tensor.replace(' ', '')}"


def lead_progress(times: GpuTimeRow | None) -> str | None:
    """``lead 38.0 ms idle 12%``: how far launches run ahead at a backward, and how long the GPU had nothing to do."""
    if times is None:
        return None
    medians = [lead.median_us for lead in times.leads if lead.boundary == "backward begin"]
    lead = f"lead {ms(medians[0] / 1000)}" if medians and medians[0] is not None else ""
    idle = f"idle {percent(times.idle_ratio).replace(' ', '')}" if times.idle_ratio else ""
    return " ".join(filter(None, (lead, idle))) or None


def spread(ratios: Iterable[float | None]) -> str:
    """``43–97 %``: the least and the most of those that are known."""
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return ABSENT
    least, most = percent(min(known)), percent(max(known))
    return most if least == most else f"{least.removesuffix(' %')}–{most}"


def _used(gpus: Sequence[GpuRow]) -> list[GpuRow]:
    """Those that the run uses; of a GPU that is cut into MIG instances only these."""
    used = [gpu for gpu in gpus if gpu.used_by_run]
    cut = {gpu.parent_uuid for gpu in used}
    return [gpu for gpu in used if gpu.uuid not in cut]


def _busy(gpu: GpuRow) -> float | None:
    """How busy it is, if it answers; of a MIG instance the driver tells only the activity of its multiprocessors."""
    if gpu.stale_s >= STALE_S:
        return None
    return gpu.util_ratio if gpu.parent_uuid is None else gpu.sm_ratio


def _tensor(gpu: GpuRow) -> float | None:
    return gpu.tensor_ratio if gpu.stale_s < STALE_S else None
