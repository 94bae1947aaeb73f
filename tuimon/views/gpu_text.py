"""The GPUs of a run in a few words: for the title line and for headless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuimon.session.rows import GpuRow, GpuTimeRow
from tuimon.views.format import ABSENT, ms, percent
from tuimon.views.gpu_idle import idle_share_text

#: Figures are old after three windows, but not before so long: the driver may be polled only every 5 s.
STALE_S = 8.0
_STALE_WINDOWS = 3
#: With more GPUs than this a record covers several windows.
_GPUS_A_WINDOW = 2
#: The word for MIG instances, whose utilisation is unknown.
_SM = " SM"


def stale_after_s(gpus: Sequence[GpuRow], interval_s: float) -> float:
    """The age from which a GPU's figures are shown as old."""
    used = sum(gpu.used_by_run for gpu in gpus)
    return max(STALE_S, _STALE_WINDOWS * interval_s * -(-used // _GPUS_A_WINDOW))


def gpu_text(gpus: Sequence[GpuRow], interval_s: float = 1.0) -> str | None:
    """``GPU 97 % · tensor 12 %`` of the GPUs that the run uses; None where nothing is known of them."""
    used = _used(gpus)
    fresh = _fresh(used, stale_after_s(gpus, interval_s))
    busy, tensor = spread(map(_busy, fresh)), spread(gpu.figures.tensor_ratio for gpu in fresh)
    if busy == ABSENT:
        return None
    name = f"{len(used)} GPUs" if len(used) > 1 else "GPU"
    return f"{name}{_SM if _is_cut(fresh) else ''} {busy}" + (f" · tensor {tensor}" if tensor != ABSENT else "")


def gpu_progress(gpus: Sequence[GpuRow], interval_s: float = 1.0) -> str | None:
    """``gpu 97% 94% tensor 12%``; where it is not known which GPUs the run uses, all of them."""
    shown = _used(gpus) or list(gpus)
    if not shown:
        return None
    fresh = _fresh(shown, stale_after_s(gpus, interval_s))
    busy = " ".join(percent(_busy(gpu) if gpu in fresh else None).replace(" ", "") for gpu in shown[:8])
    text = f"gpu{_SM if _is_cut(fresh) else ''} {busy}"
    tensor = spread(gpu.figures.tensor_ratio for gpu in fresh)
    return text if tensor == ABSENT else f"{text} tensor {tensor.replace(' ', '')}"


def lead_progress(times: GpuTimeRow | None) -> str | None:
    """``lead 38.0 ms idle 12–20%``: how far launches run ahead at a backward, and what of its time the GPU idles."""
    if times is None:
        return None
    medians = [lead.median_us for lead in times.leads if lead.boundary == "backward begin"]
    lead = f"lead {ms(medians[0] / 1000)}" if medians and medians[0] is not None else ""
    idle = f"idle {idle_share_text(times).replace(' ', '')}" if times.idle_ratio else ""
    return " ".join(filter(None, (lead, idle))) or None


def spread(ratios: Iterable[float | None]) -> str:
    """``43–97 %``: the lowest and the highest known ratio."""
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return ABSENT
    least, most = percent(min(known)), percent(max(known))
    return most if least == most else f"{least.removesuffix(' %')}–{most}"


def _used(gpus: Sequence[GpuRow]) -> list[GpuRow]:
    """The GPUs that the run uses; of one cut into MIG instances only the instances."""
    used = [gpu for gpu in gpus if gpu.used_by_run]
    cut = {gpu.latest.parent_uuid for gpu in used}
    return [gpu for gpu in used if gpu.latest.uuid not in cut]


def _fresh(gpus: Sequence[GpuRow], stale_s: float) -> list[GpuRow]:
    return [gpu for gpu in gpus if gpu.stale_s < stale_s]


def _busy(gpu: GpuRow) -> float | None:
    """Its utilisation; for a MIG instance the driver reports only the activity of its multiprocessors."""
    return gpu.figures.util_ratio if gpu.latest.parent_uuid is None else gpu.figures.sm_ratio


def _is_cut(gpus: Sequence[GpuRow]) -> bool:
    """True if all of them are MIG instances."""
    return bool(gpus) and all(gpu.latest.parent_uuid is not None for gpu in gpus)
