"""Rules about the state of the GPU: memory on its edge, too little to do."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import utilisation
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import ALLOCATOR, GPU_COUNTERS, GPU_LOAD, GPU_TIMES, Rule
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
    known = [
        (utilisation(row), row.latest.memory_used_bytes, row.latest.memory_total_bytes, row.latest)
        for row in evidence.gpu.rows
    ]
    figures = [(used, held / total, gpu) for used, held, total, gpu in known if used is not None and held and total]
    if evidence.steps.phases is None or not figures or len(figures) < len(known) or evidence.gpu.awaits_idle_causes:
        return None
    if any(max(used, filled) >= MOST for used, filled, _ in figures):
        return None
    used, filled, gpu = figures[0]
    larger = larger_batch(evidence, Interval(1.0 - used, 1.0 - used).up_to(evidence.gpu.launches_at_most))
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
            "sm_ratio": gpu.sm_ratio,
            "occupancy_ratio": gpu.occupancy_ratio,
        },
    )


def idle_sms(evidence: Evidence) -> Finding | None:
    """A kernel always runs, but on few of the GPU's multiprocessors; with several ranks it may be one that waits."""
    gpu, means = evidence.gpu.steps, [row.means for row in evidence.gpu.rows if row.means is not None]
    ratios = [each.sm_ratio for each in means if each.sm_ratio is not None]
    if gpu is None or not gpu.is_bottleneck or evidence.world_size > 1 or not ratios or min(ratios) >= LARGE:
        return None
    larger = larger_batch(evidence, Interval.around(1.0 - min(ratios)))
    compiled = "" if evidence.gpu.launching.is_compiled else "torch.compile(model), "
    fused = Fix(f"let fewer, larger kernels do the work: {compiled}whole tensors instead of loops over their parts")
    return Finding(
        severity="info",
        headline=(
            f"GPU busy at least {percent(1.0 - gpu.idle.high)} of the time, but with {percent(min(ratios))} of its SMs:"
            " its kernels are too small to fill it"
        ),
        fixes=(fused, *([larger.by_up_to(larger.gain and larger.gain.high)] if larger is not None else [])),
        evidence={"sm_ratio": min(ratios), "gpu_idle_at_most": gpu.idle.high, "gpu_ms_per_step": gpu.step_ms},
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

IDLE_SMS = Rule(
    title="Most SMs idle on a busy GPU",
    judge=idle_sms,
    needs=(GPU_TIMES, GPU_COUNTERS),
    thresholds=(LARGE,),
    only_in_order=True,
)
