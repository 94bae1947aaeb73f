"""Rules about the GPUs that a run has: those that do nothing, and those far from the cores that submit their work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuimon.diagnosis.cells import PASSES
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import READINGS, is_free, runs_nothing, whole_gpus
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rule import GPU_COUNTERS, NUMA_NODES, Rule
from tuimon.diagnosis.threshold import NEARLY_ALL, SMALL, TRACE
from tuimon.records import GpuProcess, Process, bare_uuid
from tuimon.session.gpus import GpuRow
from tuimon.session.machines import Placement
from tuimon.session.stacks.samples import HotLine
from tuimon.text import plain

#: For GPUs on which nothing runs: a headline and an action.
_UNUSED = (
    "nothing runs on {gpus}: the training uses {own} of {all} GPUs",
    "train on all {all} (torchrun --nproc-per-node {all}, DistributedDataParallel), or ask for {own}",
)
_HELD = (
    "the training holds {gpus}, and runs no kernel there",
    "train on it too (torchrun --nproc-per-node {own}), or leave it out of CUDA_VISIBLE_DEVICES",
)
_MODEL_ON_CPU = (
    "no kernel runs on {gpus}: the model computes on the CPU",
    "move the model and each batch to the GPU: .to('cuda'); torch must be a build with CUDA",
)
#: By role: the process that holds memory of a GPU without using it, in words, and what to do.
_HOLDERS = {
    "trainer": ("rank", "call torch.cuda.set_device(local_rank) first of all, and torch.load(map_location=)"),
    "worker": (
        "DataLoader worker",
        "keep the data set's tensors on the CPU, and move each batch in the training loop",
    ),
}


def idle_gpu(evidence: Evidence) -> Finding | None:
    """A GPU of the run has run no kernel since the steps began, or is held by a process that trains elsewhere."""
    gpus = whole_gpus(evidence.run.gpus)
    own = [row for row in gpus if row.used_by_run]
    if not own or not evidence.gpu.has_stepped or evidence.gpu.is_contradicted:
        return None
    still = [row for row in own if runs_nothing(row) and len(row.latest.processes) == len(row.run_pids)]
    if len(still) == len(own):
        return _idle("model_on_cpu", _MODEL_ON_CPU, still, own, evidence.hottest_in("forward"))
    if still:
        return _idle("held", _HELD, still, own)
    # GPUs that CUDA_VISIBLE_DEVICES names; without that variable, the machine's GPUs of the models in use
    models = {row.latest.name for row in own}
    could = [row for row in gpus if row.latest.chosen] or [row for row in gpus if row.latest.name in models]
    free = [row for row in could if is_free(row) and runs_nothing(row)]
    return _idle("unused", _UNUSED, free, own) if free else _contexts(gpus, evidence)


def _idle(
    cause: str, texts: tuple[str, str], still: Sequence[GpuRow], own: Sequence[GpuRow], hot: HotLine | None = None
) -> Finding:
    """The finding, without a gain: nobody knows how well the training would use more GPUs."""
    every = len({row.latest.uuid for row in (*own, *still)})
    gpus = ", ".join(str(row.latest.index) for row in still)
    headline, action = (text.format(gpus=f"GPU {gpus}", own=len(own), all=every) for text in texts)
    return Finding(
        severity="info",
        cause=cause,
        headline=headline,
        fixes=(Fix(action),),
        where=(hot.place,) if hot is not None else (),
        evidence={
            "gpus": ", ".join(f"{row.latest.index} ({plain(row.latest.name)})" for row in still),
            "readings": min(len(row.history("util_ratio")) for row in still),
            "held_bytes": sum(held.memory_bytes or 0 for row in still for held in row.latest.processes) or None,
        },
    )


def _contexts(gpus: Sequence[GpuRow], evidence: Evidence) -> Finding | None:
    """Ranks that hold memory of a GPU on which they do not train, and workers that hold memory of any GPU."""
    for row in gpus:
        holders: dict[str, list[GpuProcess]] = {"trainer": [], "worker": []}
        # without any process's share, a worker that computes looks like one that does not
        is_told = any(each.sm_ratio for each in row.latest.processes)
        for each in row.latest.processes:
            process = evidence.run.processes.get(each.pid)
            if process is None or process.role not in holders:
                continue
            uses = {bare_uuid(uuid) for uuid in process.gpu_uuids} or {bare_uuid(row.latest.uuid)}
            computes = not is_told or (each.sm_ratio or 0.0) >= TRACE
            if bare_uuid(row.latest.uuid) not in uses if process.role == "trainer" else not computes:
                holders[process.role].append(each)
        for role, (who, action) in _HOLDERS.items():
            if number := len(holders[role]):
                held_by = f"{number} {who}{'s' * (number > 1)}"
                return Finding(
                    severity="info",
                    cause="context",
                    headline=f"memory of GPU {row.latest.index} is held, and not used, by {held_by}",
                    fixes=(Fix(action),),
                    evidence={
                        "gpu": row.latest.index,
                        "processes": number,
                        "held_bytes": sum(each.memory_bytes or 0 for each in holders[role]) or None,
                    },
                )
    return None


def placement(evidence: Evidence) -> Finding | None:
    """A training process runs on cores of another NUMA node than the one that its GPU is attached to."""
    far = list(_far(evidence))
    if not far:
        return None
    _, gpu, node, place = next((each for each in far if each[0].pid == evidence.pid), far[0])
    index, runs_on = gpu.latest.index, place.ran_on[-1]
    runs = "may only run" if node not in place.allowed else "runs"
    action = (
        f"bind it to that node: torchrun --numa-binding=node, or numactl --cpunodebind={node} --localalloc python ..."
    )
    if node not in place.allowed:
        action = (
            f"let it use cores of node {node}: change what binds it (numactl, taskset), or ask the scheduler for cores"
            " near the GPU (Slurm: --gres-flags=enforce-binding)"
        )
    return Finding(
        severity="info",
        headline=f"GPU {index} is attached to NUMA node {node}, and its process {runs} on node {runs_on}",
        fixes=(Fix(action),),
        evidence={
            "gpu": index,
            "gpu_node": node,
            "runs_on_node": runs_on,
            "ranks_far": len(far),
            "ranks": len(evidence.run.here.trainers),
        },
    )


def _far(evidence: Evidence) -> Iterator[tuple[Process, GpuRow, int, Placement]]:
    """Training processes away from the NUMA node of their GPU: confined to other cores, or hardly ever near it."""
    for pid in evidence.run.here.trainers:
        place, process = evidence.run.here.table.placement(pid), evidence.run.processes.get(pid)
        if place is None or process is None or process.ended:
            continue
        uuids = {bare_uuid(uuid) for uuid in process.gpu_uuids}
        gpus = [row for row in evidence.run.gpus if bare_uuid(row.latest.uuid) in uuids]
        near = {tuple(row.latest.near_nodes or ()) for row in gpus}
        if len(near) != 1 or not (nodes := near.pop()):
            continue  # several GPUs of different nodes, or no known node
        away, seen = sum(node not in nodes for node in place.ran_on), len(place.ran_on)
        if set(nodes).isdisjoint(place.allowed) or (seen >= READINGS and away >= NEARLY_ALL * seen):
            yield process, gpus[0], nodes[0], place


IDLE_GPU = Rule(
    title="GPUs that do nothing",
    judge=idle_gpu,
    needs=(GPU_COUNTERS,),
    thresholds=(READINGS, TRACE, SMALL),
    causes=("unused", "held", "model_on_cpu", "context"),
    of_moment=True,
    takes=lambda cell, finding: finding.cause == "model_on_cpu" and cell.phase in PASSES,
)

PLACEMENT = Rule(
    title="Cores far from the GPU",
    judge=placement,
    needs=(NUMA_NODES,),
    thresholds=(READINGS, NEARLY_ALL),
    of_moment=True,
)
