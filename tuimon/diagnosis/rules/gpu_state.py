"""Rules about the state of the GPU: clocks held down, memory on its edge, tensor cores unused, too little to do."""

from __future__ import annotations

from tuimon.diagnosis.evidence.common import percent, uses_gpu
from tuimon.diagnosis.evidence.gpu import gpus_of, picture_of, run_gpus, utilisation
from tuimon.diagnosis.finding import Finding
from tuimon.session.rows import GpuRow
from tuimon.session.session import Session

#: Share of time that clocks are held down, from which it is sustained (FIELD-NOTES: any that is sustained).
THROTTLE_SHARE = 0.25
#: Causes that mean something is wrong; at its power limit a busy GPU works as it was built to.
_FAULTS = ("hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake")
_CAPS = ("power cap", "sync boost", "application clocks")
#: Tensor cores that are busy for less of the time are unused (proposal), from this compute capability on.
TENSOR_SHARE = 0.02
TENSOR_CAPABILITY = 7.0
TF32_CAPABILITY = 8.0
#: Utilisation and memory below which a GPU has room for a larger batch (FIELD-NOTES: 50 % each).
SMALL_SHARE = 0.50


def throttled(session: Session, pid: int) -> Finding | None:
    """The GPU's clocks are held down: heat, power, or a fault.

    Evidence: NVML's throttle counters over the last 30 s. A warning only where the GPU is the bottleneck, and the cause
    is not the power limit that it is built to work at. Abstains without counters.
    """
    held = [(cause, share, gpu) for gpu in run_gpus(session) for cause, share in gpu.throttled]
    held = [(cause, share, gpu) for cause, share, gpu in held if share >= THROTTLE_SHARE and cause in _FAULTS + _CAPS]
    if not held or uses_gpu(session, pid) is False:
        return None
    cause, share, gpu = max(held, key=lambda found: (found[0] in _FAULTS, found[1]))
    picture = picture_of(session, pid)
    busy = picture.is_bottleneck if picture is not None else (utilisation(gpu) or 0.0) >= 1.0 - SMALL_SHARE / 5
    mhz, most_mhz = gpu.latest.sm_clock_mhz, gpu.latest.sm_clock_max_mhz
    slowed = mhz / most_mhz if mhz and most_mhz else None
    clocks = f" ({mhz} of {most_mhz} MHz)" if slowed is not None else ""
    return Finding(
        rule="throttled",
        severity="warning" if busy and cause in _FAULTS else "info",
        headline=f"GPU {gpu.latest.index} is held down {percent(share)} of the time by {cause}{clocks}",
        action=_cooler(cause),
        share_of_step=1.0 - slowed if slowed is not None and busy else None,
        evidence={
            "cause": cause,
            "throttled_share": share,
            "sm_clock_mhz": mhz,
            "sm_clock_max_mhz": most_mhz,
            "temperature_c": gpu.latest.temperature_c,
            "power_w": gpu.latest.power_w,
            "power_limit_w": gpu.latest.power_limit_w,
            "speedup_at_most": 1.0 / slowed if slowed and busy else None,
        },
    )


def _cooler(cause: str) -> str:
    if cause.startswith("thermal") or cause == "hardware slowdown":
        return "look at the cooling: fans, air flow, neighbours in the case; nvidia-smi -q -d TEMPERATURE,PERFORMANCE"
    if cause == "power brake":
        return "the machine's power supply holds it back: ask who runs the machine"
    if cause == "power cap":
        return "at full power that is as built; a limit below its default can be raised (nvidia-smi -pl)"
    return "clocks were set by someone: nvidia-smi -q -d CLOCK tells"


def allocator_retries(session: Session, pid: int) -> Finding | None:
    """torch's allocator had to free its cache and try again: memory is on its edge, and each retry stops the GPU.

    Evidence: ``num_alloc_retries`` since training was steady. Threshold: any (FIELD-NOTES). Abstains where it is not
    told.
    """
    rows = [memory for memory in session.torch_memory(pid) if memory.retries]
    if not rows:
        return None
    worst = max(rows, key=lambda memory: memory.retries or 0)
    gpu = next((g for g in gpus_of(session, pid) if g.latest.uuid == worst.uuid), None)
    total = gpu.latest.memory_total_bytes if gpu is not None else None
    retries = worst.retries or 0
    return Finding(
        rule="allocator_retries",
        severity="warning",
        headline=(
            f"torch's allocator has had to free its cache {retries} {'time' if retries == 1 else 'times'} since"
            f" training was steady: the GPU's memory is on its edge"
        ),
        action=(
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, a smaller batch or activation checkpointing; batches of"
            " like length fragment memory less"
        ),
        evidence={
            "retries": retries,
            "device": worst.device,
            "allocated_bytes": worst.allocated_bytes,
            "reserved_bytes": worst.reserved_bytes,
            "total_bytes": total,
        },
    )


def low_precision_unused(session: Session, pid: int) -> Finding | None:
    """The GPU is the bottleneck, and its tensor cores do nothing.

    Evidence: GPU events, tensor activity (GPM) below 2 % and compute capability; the type of the parameters and whether
    TF32 is on, where the process told them. Abstains without tensor activity.
    """
    picture = picture_of(session, pid)
    gpu = next((g for g in gpus_of(session, pid) if g.latest.tensor_ratio is not None), None)
    if picture is None or not picture.is_bottleneck or gpu is None or gpu.latest.tensor_ratio is None:
        return None
    tensor_ratio, capability, process = gpu.latest.tensor_ratio, gpu.latest.compute_capability, session.process(pid)
    if tensor_ratio >= TENSOR_SHARE or capability is None or capability < TENSOR_CAPABILITY:
        return None
    types = process.parameter_dtypes if process is not None else []
    if types and "float32" not in types:
        return None
    tf32 = process.tf32 if process is not None else None
    return Finding(
        rule="low_precision_unused",
        severity="info",
        headline=(
            f"the GPU is the bottleneck, and its tensor cores are busy {100 * tensor_ratio:.1f} % of the time:"
            f" {'it computes in full float32' if types and tf32 is False else 'lower precision is not used'}"
        ),
        action=_lower(capability, tf32),
        evidence={
            "tensor_ratio": tensor_ratio,
            "compute_capability": capability,
            "parameter_dtypes": ", ".join(types) or None,
            "tf32": None if tf32 is None else int(tf32),
        },
    )


def _lower(capability: float, tf32: bool | None) -> str:
    if capability < TF32_CAPABILITY:
        return "torch.autocast('cuda', torch.float16) with a GradScaler"
    first = "" if tf32 else "torch.set_float32_matmul_precision('high') (TF32), or "
    return f"{first}torch.autocast('cuda', torch.bfloat16); sizes that are multiples of 8"


def small_batch(session: Session, pid: int) -> Finding | None:
    """The GPU has room in time and in memory: a larger batch would use both.

    Evidence: NVML's utilisation and memory in use, both below 50 % (FIELD-NOTES). Told only where nothing else explains
    an idle GPU (see ``rank``). Abstains without figures of the GPU.
    """
    figures = [(gpu, utilisation(gpu), _filled(gpu)) for gpu in gpus_of(session, pid)]
    if session.phases(pid) is None or not figures:
        return None
    if any(used is None or filled is None or max(used, filled) >= SMALL_SHARE for _, used, filled in figures):
        return None
    gpu, used, filled = figures[0]
    return Finding(
        rule="small_batch",
        severity="info",
        headline=(
            f"GPU {gpu.latest.index} is used {percent(used or 0.0)} of the time,"
            f" with {percent(filled or 0.0)} of its memory"
        ),
        action="a larger batch (with a learning rate that fits) would use what is free",
        evidence={
            "gpu_util": used,
            "memory_ratio": filled,
            "sm_ratio": gpu.latest.sm_ratio,
            "occupancy_ratio": gpu.latest.occupancy_ratio,
        },
    )


def _filled(gpu: GpuRow) -> float | None:
    used, total = gpu.latest.memory_used_bytes, gpu.latest.memory_total_bytes
    return used / total if used is not None and total else None
