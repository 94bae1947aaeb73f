"""Who else is on the training's GPU: the part of ``neighbour`` about GPUs."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.machines import Machine
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import percent
from tuimon.node_ids import own_id
from tuimon.session.rows import GpuRow

STRANGER_SHARE = Threshold(
    0.10,
    "share of the GPU's time that other programs take, from which it is a warning",
    "our choice: as for input; a desktop's display stays below it",
)
STRANGER_CRITICAL = Threshold(
    0.40,
    "share of the GPU's time that other programs take, from which it is critical",
    "our choice: near half, as with a second training; less may be a notebook's occasional kernels",
)


def shared_gpu(evidence: Evidence) -> Finding | None:
    """Another program computes on the training's GPU, or another training of the run does (info).

    Processes on one GPU take turns: while one computes, the other waits. On other nodes strangers count alone.
    """
    for gpu in evidence.gpus:
        found = _strangers(gpu, evidence.run.here) or _siblings(evidence, gpu)
        if found is not None:
            return found
    elsewhere = (machine for machine in evidence.run.machines[1:] if machine.has_strangers)
    taken = (_strangers(gpu, machine) for machine in elsewhere for gpu in evidence.run.gpus_used_on(machine.node))
    return max(filter(None, taken), key=lambda finding: finding.share_of_step or 0.0, default=None)


def _strangers(gpu: GpuRow, machine: Machine) -> Finding | None:
    ratios = {process.pid: process.sm_ratio for process in gpu.others if process.sm_ratio is not None}
    taken = sum(ratios.values())
    if taken < STRANGER_SHARE:
        return None
    pid = max(ratios, key=ratios.__getitem__)
    who = f"process {own_id(pid)}" if own_id(pid) else "another program"
    return Finding(
        rule="neighbour",
        severity="critical" if taken >= STRANGER_CRITICAL else "warning",
        headline=(
            f"{machine.place}{who} takes {percent(taken)} of GPU {gpu.latest.index}: the training waits for its turn"
        ),
        action="choose another GPU (CUDA_VISIBLE_DEVICES), or wait for that program: nvidia-smi shows it",
        share_of_step=min(1.0, taken),
        evidence={"gpu": gpu.latest.index, "others_sm_ratio": taken, "others": len(ratios), **machine.facts},
    )


def _siblings(evidence: Evidence, gpu: GpuRow) -> Finding | None:
    known = (evidence.run.processes.get(pid) for pid in evidence.run.trainers if pid != evidence.pid)
    others = [p for p in known if p is not None and not p.ended and gpu.latest.uuid in p.gpu_uuids]
    if not others:
        return None
    return Finding(
        rule="neighbour",
        severity="info",
        headline=f"{len(others) + 1} trainings share GPU {gpu.latest.index}: they take turns on it",
        action="give each training a GPU of its own (CUDA_VISIBLE_DEVICES), unless each leaves this one idle",
        evidence={"gpu": gpu.latest.index, "trainings": len(others) + 1, "gpu_util": gpu.latest.util_ratio},
    )
