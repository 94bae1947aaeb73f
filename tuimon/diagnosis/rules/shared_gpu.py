"""Who else is on the training's GPU."""

from __future__ import annotations

from tuimon.diagnosis.evidence.common import percent
from tuimon.diagnosis.evidence.gpu import gpus_of
from tuimon.diagnosis.finding import Finding
from tuimon.session.rows import GpuRow
from tuimon.session.session import Session

#: Share of the GPU's time that another process takes, from which it is told, and from which it is grave (proposals).
STRANGER_SHARE = 0.10
STRANGER_CRITICAL = 0.40


def shared_gpu(session: Session, pid: int) -> Finding | None:
    """Another program computes on the training's GPU, or another training of the run does (info).

    Processes on one GPU take turns on it: what one of them computes, the other waits for. Evidence: NVML's processes
    with their share of the multiprocessors' time, and which GPU each training says it uses. Abstains without either.
    """
    for gpu in gpus_of(session, pid):
        found = _stranger(gpu) or _siblings(session, pid, gpu)
        if found is not None:
            return found
    return None


def _stranger(gpu: GpuRow) -> Finding | None:
    strangers = {process.pid: process.sm_ratio for process in gpu.others if process.sm_ratio is not None}
    taken = sum(strangers.values())
    if taken < STRANGER_SHARE:
        return None
    pid = max(strangers, key=strangers.__getitem__)
    who = f"process {pid}" if pid else "another program"
    return Finding(
        rule="neighbour",
        severity="critical" if taken >= STRANGER_CRITICAL else "warning",
        headline=f"{who} takes {percent(taken)} of GPU {gpu.latest.index}: the training waits for its turn",
        action="nvidia-smi tells what it is; wait for it, or choose another GPU (CUDA_VISIBLE_DEVICES)",
        share_of_step=min(1.0, taken),
        evidence={"gpu": gpu.latest.index, "others_sm_ratio": taken, "others": len(strangers)},
    )


def _siblings(session: Session, pid: int, gpu: GpuRow) -> Finding | None:
    others = [
        other
        for other in session.trainers()
        if other != pid and (p := session.process(other)) is not None and not p.ended and gpu.latest.uuid in p.gpu_uuids
    ]
    if not others:
        return None
    return Finding(
        rule="neighbour",
        severity="info",
        headline=f"{len(others) + 1} trainings share GPU {gpu.latest.index}: they take turns on it",
        action="that is well where each leaves it idle; a GPU each (CUDA_VISIBLE_DEVICES) is faster",
        evidence={"gpu": gpu.latest.index, "trainings": len(others) + 1, "gpu_util": gpu.latest.util_ratio},
    )
