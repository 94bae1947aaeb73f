"""Rules about the state of the GPU: clocks held down, memory on its edge, too little to do."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import utilisation
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import ALLOCATOR, GPU_COUNTERS, GPU_LOAD, GPU_TIMES, Rule
from tuimon.diagnosis.rules.gpu.launches import larger_batch
from tuimon.diagnosis.threshold import LARGE, MOST, NEARLY_ALL, REPORTED
from tuimon.diagnosis.words import percent
from tuimon.node_ids import node_of

_COOL = "check the cooling: fans, air flow, neighbours in the case; nvidia-smi -q -d TEMPERATURE,PERFORMANCE"
_RESET = "reset the clocks that someone has set: nvidia-smi -q -d CLOCK shows them"
#: Causes of throttling that mean something is wrong, and what to do about each.
_FAULTS = {
    "hardware slowdown": _COOL,
    "thermal (software)": _COOL,
    "thermal (hardware)": _COOL,
    "power brake": "ask whoever runs the machine: its power supply holds the GPU back",
}
#: At its power limit a busy GPU works as it was built to.
_CAUSES = _FAULTS | {
    "power cap": "raise the power limit if it is below its default (nvidia-smi -pl): at full power this is normal",
    "sync boost": _RESET,
    "application clocks": _RESET,
}


def throttled(evidence: Evidence) -> Finding | None:
    """The GPU's clocks are held down: heat, power, or a fault.

    A warning only where the GPU is the bottleneck, and the cause is not the power limit that it is built to work at.
    """
    held = [
        (cause, share, gpu, machine)
        for machine in evidence.run.machines
        for gpu in evidence.run.gpus_used_on(machine.node)
        for cause, share in gpu.throttled
        if share >= LARGE and cause in _CAUSES
    ]
    if not held or evidence.gpu.is_used is False:
        return None
    cause, share, gpu, machine = max(held, key=lambda found: (found[0] in _FAULTS, found[1]))
    steps = evidence.gpu.steps if machine.node == node_of(evidence.pid) else None
    busy = steps.is_bottleneck if steps is not None else (utilisation(gpu) or 0.0) >= NEARLY_ALL
    mhz, most_mhz = gpu.latest.sm_clock_mhz, gpu.latest.sm_clock_max_mhz
    slowed = mhz / most_mhz if mhz and most_mhz else None
    clocks = f" ({mhz} of {most_mhz} MHz)" if slowed is not None else ""
    most = 1.0 / slowed if slowed and busy else None
    return Finding(
        severity="warning" if busy and cause in _FAULTS else "info",
        headline=f"{machine.place}GPU {gpu.latest.index} is held down {percent(share)} of the time: {cause}{clocks}",
        fixes=(Fix(_CAUSES[cause]).by_up_to(most),),
        share_of_step=1.0 - slowed if slowed is not None and busy else None,
        evidence={
            "cause": cause,
            "throttled_share": share,
            **machine.facts,
            "sm_clock_mhz": mhz,
            "sm_clock_max_mhz": most_mhz,
            "temperature_c": gpu.latest.temperature_c,
            "power_w": gpu.latest.power_w,
            "power_limit_w": gpu.latest.power_limit_w,
            "speedup_at_most": most,
        },
    )


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

THROTTLED = Rule(
    title="Clocks held down",
    judge=throttled,
    needs=(GPU_COUNTERS,),
    of_moment=True,
    thresholds=(LARGE, NEARLY_ALL, REPORTED),
    from_outside=True,
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
