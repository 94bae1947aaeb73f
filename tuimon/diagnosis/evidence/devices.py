"""The GPUs that a run and a process use, and those that do nothing."""

from __future__ import annotations

from collections.abc import Container, Sequence

from tuimon.diagnosis.threshold import SMALL, TRACE, Threshold
from tuimon.records import Process, bare_uuid
from tuimon.session.rows import GpuRow

#: Seconds after which figures of a GPU, or of the machine, are too old.
RECENT_S = 30
READINGS = Threshold(
    6,
    "readings from which a GPU without a kernel does nothing, and a process stays on the NUMA node that it ran on",
    "our choice: 6 s of a GPU that the run uses, 24 s of any other, and 30 s of a process, which are read less often",
)


def run_gpus(gpus: Sequence[GpuRow]) -> tuple[GpuRow, ...]:
    """The GPUs that the run uses and whose figures are recent."""
    return tuple(row for row in gpus if row.used_by_run and row.stale_s < RECENT_S)


def process_gpus(gpus: Sequence[GpuRow], process: Process | None) -> tuple[GpuRow, ...]:
    """The run's GPUs that one process uses; all of them where it has not reported which."""
    own = {bare_uuid(uuid) for uuid in process.gpu_uuids} if process is not None else set()
    return tuple(row for row in gpus if bare_uuid(row.latest.uuid) in own) or tuple(gpus)


def utilisation(row: GpuRow) -> float | None:
    """Share of the steps' time in which a kernel ran; None where it is not measured."""
    return row.means.util_ratio if row.means is not None else None


def least_utilisation(gpus: Sequence[GpuRow]) -> float | None:
    """Utilisation of the least used of several GPUs."""
    known = [used for gpu in gpus if (used := utilisation(gpu)) is not None]
    return min(known, default=None)


def uses_gpu(process: Process | None, gpus: Sequence[GpuRow], notices: Container[str]) -> bool | None:
    """True if a process computes on a GPU; None where that is unknown. ``gpus``: of the machine."""
    if process is not None and process.gpu_uuids:
        return True
    if any(gpu.used_by_run for gpu in gpus):
        return True
    if process is not None and process.torch and "+cpu" in process.torch:
        return False
    if gpus or "gpu" in notices:  # NVML was queried: no process of ours, or no driver at all
        return False
    return None


def whole_gpus(gpus: Sequence[GpuRow]) -> tuple[GpuRow, ...]:
    """Those of a machine with recent figures, without MIG instances and the GPUs that are cut into them."""
    cut = {row.latest.parent_uuid for row in gpus}
    return tuple(
        row for row in gpus if row.latest.parent_uuid is None and row.latest.uuid not in cut and row.stale_s < RECENT_S
    )


def runs_nothing(row: GpuRow) -> bool:
    """True if no kernel has run on a GPU, of the run or of anybody else, for as long as its readings are held."""
    known = [used for used in row.history("util_ratio") if used is not None]
    return len(known) >= READINGS and max(known) < TRACE


def is_free(row: GpuRow) -> bool:
    """True if nobody uses a GPU, as far as its figures tell: in a container the driver may hide other processes."""
    gpu = row.latest
    held = gpu.memory_used_bytes / gpu.memory_total_bytes if gpu.memory_used_bytes and gpu.memory_total_bytes else 0.0
    return not row.used_by_run and not gpu.processes and not gpu.pids and held < SMALL and not gpu.util_ratio
