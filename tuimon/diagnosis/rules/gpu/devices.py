"""Rules about the GPUs that a run has: those that do nothing, and those far from the cores that feed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuimon.diagnosis.cells import PASSES
from tuimon.diagnosis.evidence.devices import READINGS, is_free, runs_nothing, whole_gpus
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rule import GPU_COUNTERS, NUMA_NODES, Rule
from tuimon.diagnosis.threshold import NEARLY_ALL, SMALL, TRACE
from tuimon.records import Place, Process, bare_uuid
from tuimon.session.machines import Placement
from tuimon.session.rows import GpuRow
from tuimon.text import plain, size_text

#: The first version of torch whose torchrun has --numa-binding: https://docs.pytorch.org/docs/2.9/elastic/numa.html
_NUMA_BINDING = [2, 9]


def idle_gpu(evidence: Evidence) -> Finding | None:
    """A GPU of the run has run no kernel since the steps began, or is held by a process that trains elsewhere."""
    gpus = whole_gpus(evidence.run.gpus)
    own = [row for row in gpus if row.used_by_run]
    if not own or not evidence.has_stepped:
        return None
    still = [row for row in own if runs_nothing(row) and not row.others]
    if len(still) == len(own):
        return _model_on_cpu(still, evidence)
    return _held(still, own) if still else _unused(gpus, own, evidence) or _contexts(gpus, evidence)


def _model_on_cpu(still: Sequence[GpuRow], evidence: Evidence) -> Finding:
    process, hot = evidence.process, evidence.hottest_in("forward")
    action = "move the model and each batch to the GPU: .to('cuda')"
    if process is not None and process.torch is not None and "+cpu" in process.torch:
        action += "; torch here is a build without CUDA, so install one with it"
    runs = "runs" if len(still) == 1 else "run"
    headline = f"{_names(still)} {runs} no kernel: the model computes on the CPU"
    return _idle("model_on_cpu", headline, action, _figures(still), (hot.place,) if hot is not None else ())


def _held(still: Sequence[GpuRow], own: Sequence[GpuRow]) -> Finding:
    held_bytes = sum(process.memory_bytes or 0 for row in still for process in row.latest.processes)
    part = f"{size_text(held_bytes)} of {_names(still)}" if held_bytes else _names(still)
    them = "it" if len(still) == 1 else "them"
    action = f"train on {them} too (torchrun --nproc-per-node {len(own)}), or leave {them} out of CUDA_VISIBLE_DEVICES"
    return _idle("held", f"the training holds {part}, and runs no kernel there", action, _figures(still))


def _unused(gpus: Sequence[GpuRow], own: Sequence[GpuRow], evidence: Evidence) -> Finding | None:
    """GPUs that CUDA_VISIBLE_DEVICES names; without it those of this machine that are like the ones in use."""
    named, models = [row for row in gpus if row.latest.chosen], {row.latest.name for row in own}
    could = named or [row for row in gpus if row.latest.name in models]
    free = [row for row in could if is_free(row) and runs_nothing(row)]
    if not free:
        return None
    there_are, processes = len(own) + len(free), evidence.run.processes
    has_ranks = any((processes[pid].world_size or 1) > 1 for pid in evidence.run.here.trainers if pid in processes)
    how = "" if has_ranks else " and DistributedDataParallel"
    gpus_text = f"{len(own)} GPU{'s' * (len(own) > 1)}"
    action = f"train on all {there_are} (torchrun --nproc-per-node {there_are}{how}), or ask for {gpus_text}"
    does = "does" if len(free) == 1 else "do"
    return _idle(
        "unused",
        f"{_names(free)} {does} nothing: the training uses {len(own)} of {there_are} GPUs",
        action if named else f"{action}, if nobody else needs the rest",
        {**_figures(free), "named_by": "CUDA_VISIBLE_DEVICES" if named else None},
    )


def _contexts(gpus: Sequence[GpuRow], evidence: Evidence) -> Finding | None:
    """Ranks that hold memory of a GPU on which they do not train, and workers that hold any."""
    known = evidence.run.processes
    for row in gpus:
        found = [(each, known[each.pid]) for each in row.latest.processes if each.pid in known]
        ranks = [each for each, process in found if _trains_elsewhere(process, row)]
        # without anyone's share nothing tells a worker that computes from one that does not
        is_told = any(each.sm_ratio for each in row.latest.processes)
        idle = [each for each, process in found if process.role == "worker" and (each.sm_ratio or 0.0) < TRACE]
        for holders, who, one, many, action in (
            (
                ranks,
                "rank",
                "it does not train",
                "they do not train",
                "call torch.cuda.set_device(local_rank) first of all, and torch.load(map_location=)",
            ),
            (
                idle if is_told else [],
                "DataLoader worker",
                "it computes nothing",
                "they compute nothing",
                "keep the data set's tensors on the CPU, and move each batch in the training loop",
            ),
        ):
            if holders:
                number, sizes = len(holders), [each.memory_bytes for each in holders if each.memory_bytes is not None]
                hold = f"{who} holds" if number == 1 else f"{who}s hold"
                held = f"{size_text(sum(sizes))} of " if len(sizes) == number else ""
                which = f"on which {one if number == 1 else many}"
                figures = {"gpu": row.latest.index, "processes": number, "held_bytes": sum(sizes) or None}
                headline = f"{number} {hold} {held}GPU {row.latest.index}, {which}"
                return _idle("context", headline, action, figures)
    return None


def _trains_elsewhere(process: Process, row: GpuRow) -> bool:
    own = {bare_uuid(uuid) for uuid in process.gpu_uuids}
    return process.role == "trainer" and bool(own) and bare_uuid(row.latest.uuid) not in own


def _idle(
    cause: str,
    headline: str,
    action: str,
    figures: Mapping[str, float | int | str | None],
    where: tuple[Place, ...] = (),
) -> Finding:
    return Finding(headline, "info", (Fix(action),), cause, where=where, evidence=dict(figures))


def _names(rows: Sequence[GpuRow]) -> str:
    """``GPU 1``, ``GPUs 1, 2 and 3``."""
    *most, last = (str(row.latest.index) for row in rows)
    return f"GPUs {', '.join(most)} and {last}" if most else f"GPU {last}"


def _figures(rows: Sequence[GpuRow]) -> dict[str, float | int | str | None]:
    latest = [row.latest for row in rows]
    watts = [gpu.power_w for gpu in latest if gpu.power_w is not None]
    return {
        "gpus": ", ".join(f"{gpu.index} ({plain(gpu.name)})" for gpu in latest),
        "readings": min(len(row.history("util_ratio")) for row in rows),
        "power_w": sum(watts) if len(watts) == len(latest) else None,
    }


def placement(evidence: Evidence) -> Finding | None:
    """A training process runs on cores of another NUMA node than the one that its GPU is attached to."""
    far = list(_far(evidence))
    if not far:
        return None
    process, gpu, node, place = next((each for each in far if each[0].pid == evidence.pid), far[0])
    index, ranks, runs_on = gpu.latest.index, len(evidence.run.here.trainers), place.ran_on[-1]
    is_confined = node not in place.allowed
    who = f"rank {process.rank}" if process.rank is not None else "the training"
    headline = f"GPU {index} is attached to NUMA node {node}, and {who}"
    headline += f" {'may only run' if is_confined else 'runs'} on node {runs_on}"
    version = [int(part) for part in (process.torch or "").split(".")[:2] if part.isdecimal()]
    if is_confined:
        action = (
            f"let it use cores of node {node}: change what binds it (numactl, taskset), or ask the scheduler for cores"
            " near the GPU (Slurm: --gres-flags=enforce-binding)"
        )
    elif (process.world_size or 1) > 1 and version >= _NUMA_BINDING:
        action = "start the ranks with torchrun --numa-binding=node"
    else:
        action = f"bind it to that node: numactl --cpunodebind={node} --localalloc python ..."
    return Finding(
        severity="info",
        headline=headline + (f"; so it is with {len(far)} of {ranks} ranks" if len(far) > 1 else ""),
        fixes=(Fix(action),),
        evidence={
            "gpu": index,
            "gpu_node": node,
            "runs_on_node": runs_on,
            "ranks_far": len(far),
            "ranks": ranks,
        },
    )


def _far(evidence: Evidence) -> Iterator[tuple[Process, GpuRow, int, Placement]]:
    """Training processes away from their GPU's node: confined to other cores, or hardly ever seen near it."""
    for pid in evidence.run.here.trainers:
        place, process = evidence.run.here.placement(pid), evidence.run.processes.get(pid)
        if place is None or process is None or process.ended:
            continue
        uuids = {bare_uuid(uuid) for uuid in process.gpu_uuids}
        gpus = [row for row in evidence.run.gpus if bare_uuid(row.latest.uuid) in uuids]
        near = {tuple(row.latest.near_nodes or ()) for row in gpus}
        if len(near) != 1 or not (nodes := near.pop()):
            continue  # several GPUs that are apart, or nothing is known
        away, seen = sum(node not in nodes for node in place.ran_on), len(place.ran_on)
        if set(nodes).isdisjoint(place.allowed) or (seen >= READINGS and away >= NEARLY_ALL * seen):
            yield process, gpus[0], nodes[0], place


IDLE_GPU = Rule(
    title="GPUs that do nothing",
    judge=idle_gpu,
    explanation=(
        "A GPU that the run was given, holds or could use has run no kernel since the steps began; or a process holds"
        " memory of a GPU on which it does not train. It rests on NVML's utilisation and process lists, on the GPUs"
        " that each training process reports, and on CUDA_VISIBLE_DEVICES. GPUs that anybody else uses are left out."
    ),
    needs=(GPU_COUNTERS,),
    thresholds=(READINGS, TRACE, SMALL),
    causes=("unused", "held", "model_on_cpu", "context"),
    of_moment=True,
    takes=lambda cell, finding: finding.cause == "model_on_cpu" and cell.phase in PASSES,
)

PLACEMENT = Rule(
    title="Cores far from the GPU",
    judge=placement,
    explanation=(
        "A training process runs on cores of another NUMA node, on another socket, than the one that its GPU is"
        " attached to. It rests on the GPU's node and the cores of each node (sysfs), the cores that the process may"
        " use, and the core that its main thread ran on at each reading; on a machine with one node, or where nodes are"
        " unknown, there is nothing to judge."
    ),
    needs=(NUMA_NODES,),
    thresholds=(READINGS, NEARLY_ALL),
    of_moment=True,
)
