"""Rules about the state of the GPU: memory on its edge, too little to do."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import ALLOCATOR, GPU_COUNTERS, GPU_LOAD, Rule
from tuimon.diagnosis.rules.gpu.launches import larger_batch
from tuimon.diagnosis.threshold import LARGE, MOST, REPORTED
from tuimon.diagnosis.words import percent


def allocator_retries(evidence: Evidence) -> Finding | None:
    """torch's allocator had to free its cache and try again: memory is on its edge, and each retry stops the GPU.

    Source: https://pytorch.org/docs/stable/generated/torch.cuda.memory_stats.html
    """
    rows = [memory for memory in evidence.gpu.memory if memory.retries]
    if not rows:
        return None
    worst = max(rows, key=lambda memory: memory.retries or 0)
    gpu = next((g for g in evidence.gpu.rows if g.latest.uuid == worst.uuid), None)
    total = gpu.latest.memory_total_bytes if gpu is not None else None
    retries = worst.retries or 0
    return Finding(
        headline=(
            f"torch's allocator freed its cache {retries} {'time' if retries == 1 else 'times'} in steady training: GPU"
            " memory is on its edge"
        ),
        fixes=(
            Fix(
                "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or use a smaller batch or activation"
                " checkpointing; batches of similar length fragment memory less"
            ),
        ),
        evidence={
            "retries": retries,
            "caught_ooms": worst.ooms or None,
            "device": worst.device,
            "allocated_bytes": worst.allocated_bytes,
            "reserved_bytes": worst.reserved_bytes,
            "total_bytes": total,
        },
    )


def small_batch(evidence: Evidence) -> Finding | None:
    """The GPU has room in time and in memory: a larger batch would use both.

    Kept only where nothing else explains an idle GPU.
    """
    known = evidence.gpu.counted
    figures = [
        (means.util_ratio, gpu.memory_used_bytes / gpu.memory_total_bytes)
        for gpu, means in known
        if means.util_ratio is not None and gpu.memory_used_bytes and gpu.memory_total_bytes
    ]
    if (
        evidence.steps.phases is None
        or not known
        or len(figures) < len(evidence.gpu.rows)
        or evidence.gpu.awaits_idle_causes
    ):
        return None
    if any(max(each) >= MOST for each in figures):
        return None
    (gpu, means), (used, filled) = known[0], figures[0]
    larger = larger_batch(evidence, Interval.around(1.0 - used).up_to(evidence.gpu.launches_at_most))
    if larger is None:
        return None
    return Finding(
        severity="info",
        headline=(
            f"GPU {gpu.index} is used {percent(used)} of the time, and {percent(filled)} of its memory: room for a"
            " larger batch"
        ),
        fixes=(
            larger._replace(gain=larger.gain and Interval(1.0, larger.gain.high)),
        ),  # why the GPU idles is not known
        evidence={
            "gpu_util": used,
            "memory_ratio": filled,
            "sm_ratio": means.sm_ratio,
            "occupancy_ratio": means.occupancy_ratio,
        },
    )


ALLOCATOR_RETRIES = Rule(
    title="GPU memory on its edge",
    judge=allocator_retries,
    needs=(ALLOCATOR,),
    is_harm=True,
)

SMALL_BATCH = Rule(
    title="Room for a larger batch",
    judge=small_batch,
    needs=(GPU_COUNTERS, GPU_LOAD),
    thresholds=(MOST, LARGE, REPORTED),
    only_in_order=True,
)
