"""Cores that are missing: the run has more threads than cores, or others take its cores or its GPU."""

from __future__ import annotations

import math
import re

from tuimon.diagnosis.evidence.data import ONE_THREAD
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import utilisation
from tuimon.diagnosis.evidence.process import works
from tuimon.diagnosis.evidence.run import WANTED_RATIO, Demand, Machine, Outside, used_gpus, worst_of
from tuimon.diagnosis.finding import WARNING_GAIN, Finding, Fix, new_finding
from tuimon.diagnosis.known import known_work_of
from tuimon.diagnosis.line_text import at_hot, thread_text
from tuimon.diagnosis.rule import waits_for_cores
from tuimon.diagnosis.step_model import without_cost
from tuimon.interval import Interval
from tuimon.node_ids import own_id
from tuimon.records import Place
from tuimon.session.gpus import GpuRow
from tuimon.text import percent, plural
from tuimon.threshold import LARGE, NEARLY_ALL, REPORTED, SMALL, UNUSUAL

#: The number that a line sets, if the line spells it out: ``torch.set_num_threads(8)``.
_NUMBER = re.compile(r"""(?:set_num_threads\(|NUM_THREADS["'\]\s,=]+)["']?(\d+)""")


def cpu_oversubscribed(evidence: Evidence) -> Finding | None:
    """The run has more threads that want to run than cores; of several nodes, the worst is reported.

    Fewer threads do the same work on the same cores: they save only the cost of sharing (waits at barriers, caches that
    other threads have emptied). Measured on two cores, at the same delay: one thread instead of eight gains nothing if
    operations take ms, and 5x if they take 0.1 ms. So no gain is estimated, but the work of the pool's threads bounds
    it. If the program needs all its threads, only more cores help, by an unknown amount: then there is no warning.
    """
    found = [machine for machine in evidence.machines if lost_share(machine) is not None]
    machine, place = worst_of(found, lambda each: lost_share(each) or 0.0) if found else (evidence.machine, "")
    demand, lost = machine.demand, lost_share(machine)
    if demand is None or lost is None:
        return None
    here = machine is evidence.machine
    own = waits_for_cores(evidence, "own")
    if set(demand.busy_threads) == {evidence.pid}:  # they share its operations, and wait for the one without a core
        own = max(own or 0.0, lost)
    are_workers = here and evidence.data.workers.crowd_cores
    fewer = (Fix(ONE_THREAD), ()) if are_workers else _fewer(machine, demand)
    ways = [each for each in (_without_thread(evidence, own or 0.0) if here else None, fewer) if each is not None]
    (fix, where), *others = ways or [(Fix(f"use {math.ceil(demand.wanted)} cores"), ())]
    threads, processes = sum(demand.busy_threads.values()), len(demand.busy_threads)
    share = f"need {demand.wanted:.1f} cores but have {demand.cores}"
    if machine.core_limit is not None:
        share = f"share {machine.core_limit}"
    return new_finding(
        f"{place}{threads} threads of {plural(processes, 'process')} {share}: they wait for a core"
        f" {percent(lost)} of the time",
        fix,
        *(each for each, _ in others),
        severity="warning" if ways and (fix.gain is None or fix.gain.high >= WARNING_GAIN) else "info",
        share=own if here else machine.delay_ratio and machine.delay_ratio * (1.0 - machine.waits_from_outside.part),
        at=where,
        elsewhere=not here,
        evidence={
            "cores": demand.cores,
            "cores_used": demand.cpu,
            "cores_waited_for": demand.delay,
            "busy_threads": threads,
            "pool_works_ratio": machine.pool_works,
            **({"kept_to": machine.core_limit} if machine.core_limit is not None else {}),
            **machine.facts,
        },
    )


def _without_thread(evidence: Evidence, waits: float) -> tuple[Fix, tuple[Place, ...]] | None:
    """How the busiest Python thread next to the training can use less of a core, and its line; None if there is none.

    At most the training saves its ``waits`` for a core. Threads that make its items are needed.
    """
    others = evidence.others if evidence.data.pool is None else {}
    busy = [row for row in evidence.threads if row.tid in others and row.count == 1 and row not in evidence.computing]
    wanted = [(row.cpu_ratio or 0.0) + (row.delay_ratio or 0.0) for row in busy]
    if max(wanted, default=0.0) < UNUSUAL:
        return None
    row = busy[wanted.index(max(wanted))]
    hot = others[row.tid].where(works).hottest()
    known = known_work_of(row, hot and hot.place, others[row.tid])
    instead = f"let it do less at {at_hot(hot)}, or in another process" if hot is not None else "let it do less"
    fix = Fix(f"{known.action if known is not None else instead}: {thread_text(row)}")
    return fix.with_upper_bound(1.0 / (1.0 - min(NEARLY_ALL, waits))), (hot.place,) if hot is not None else ()


def lost_share(machine: Machine) -> float | None:
    """Share of the time its threads want to run for which they wait for each other; None if there are enough cores."""
    demand = machine.demand
    if demand is None or demand.wanted < WANTED_RATIO * demand.cores:
        return None
    lost = demand.delay * (1.0 - machine.waits_from_outside.part) / demand.wanted
    return lost if lost >= LARGE else None


def _fewer(machine: Machine, demand: Demand) -> tuple[Fix, tuple[Place, ...]] | None:
    """How the run can manage with its cores, and the line that asks for too many threads; None if it needs them all."""
    if machine.core_limit is not None:  # set by its program, by what started it, or by a cpuset
        why = "os.sched_setaffinity(), taskset or a cpuset restricts it to these"
        return Fix(f"let it use more than {machine.core_limit}: {why}"), machine.lines_that_set("cores")[:1]
    trainers = [own.pid for own in machine.trainers if own.pid in demand.busy_threads]
    if len(demand.busy_threads) - len(trainers) > demand.cores:
        fewer = f"use fewer workers: {max(1, demand.cores - 1)} on {demand.cores} cores"
        return Fix(fewer), machine.lines_that_set("workers")[:1]
    each = max(1, demand.cores // max(1, len(trainers)))
    computing = [machine.intra_op_threads.get(pid, demand.busy_threads[pid]) for pid in trainers]
    if any(number > each for number in computing):
        now = max(machine.intra_op_threads.values(), default=None)
        where = threads_set_at(machine, now)  # a line that sets another number, such as 1, is for workers
        call = f"call torch.set_num_threads({each}), or set OMP_NUM_THREADS={each}"
        if now in machine.in_environment:
            call += f" (the training was started with {now})"
        fix = Fix(f"{call}{', in each training' if len(trainers) > 1 else ''}")
        works = demand.cpu * (machine.pool_works or 0.0)  # cores that would do the same without such waits
        return fix.with_upper_bound(max(1.0, demand.cores / works) if works else None), where
    if len(trainers) > demand.cores:
        return Fix(f"use {math.ceil(demand.wanted)} cores, or run fewer trainings at once"), ()
    return None


def threads_set_at(machine: Machine, number: int | None) -> tuple[Place, ...]:
    """The line that may set this number of threads for torch's operations; none if no such line is known."""
    found = [(place, _NUMBER.search(place.source)) for place in machine.lines_that_set("threads")]
    places = [place for place, set_to in found if number is None or set_to is None or int(set_to[1]) == number]
    return tuple(sorted(places, key=lambda place: "set_num_threads" not in place.source)[:1])  # it is the last word


# -- cores, or a GPU, that others take

#: Words for the programs that take the cores, and the fix.
_HOLDERS: dict[Outside, tuple[str, str]] = {
    "programs": ("other programs hold {:.1f} cores", "check what else runs on the machine (top)"),
    "host": (
        "the host of this virtual machine gives {:.1f} cores to others",
        "use a machine whose cores are not shared (steal in top)",
    ),
    "limit": (
        "the container's CPU limit holds {:.1f} cores back",
        "raise the container's CPU limit, or use fewer threads",
    ),
    "unknown": (
        "other programs, or a CPU limit, hold the cores",
        "check what else runs on the machine (top), or the CPU limit of the container",
    ),
}
#: At the end of each operation all threads wait for one without a core. Measured next to busy programs on 2 cores, one
#: thread instead of two: 2x if an operation takes 50 ms, 5x for ms, 30x for 0.1 ms; so no gain is estimated.
_ONE_THREAD = Fix(
    "call torch.set_num_threads(1), or set OMP_NUM_THREADS=1: each operation waits for the thread without a core"
)


def neighbour(evidence: Evidence) -> Finding | None:
    """Others take the cores or the GPU (or benign: several trainings at 99 % CPU do not slow each other)."""
    if not evidence.phases:
        return None
    found = [
        machine
        for machine in evidence.machines
        if (_taken_share(machine, evidence) or 0.0) >= LARGE and machine.are_workers_known
    ]
    if found:
        return _taken_cores(*worst_of(found, lambda each: each.delay_ratio or 0.0), evidence)
    demand = evidence.machine.demand
    return _shared_gpu(evidence) or (_benign(evidence, demand) if demand is not None else None)


def _taken_share(machine: Machine, evidence: Evidence) -> float | None:
    """Share of time for which the training waits for cores that others hold; None if its waits are unknown."""
    if machine is evidence.machine:
        return waits_for_cores(evidence, "others")
    return machine.delay_ratio and machine.delay_ratio * machine.waits_from_outside.part


def _taken_cores(machine: Machine, place: str, evidence: Evidence) -> Finding | None:
    demand, share = machine.demand, _taken_share(machine, evidence)
    if demand is None or share is None:
        return None
    outside, trainers, taken = machine.waits_from_outside, machine.trainers, machine.cores_taken
    here = machine is evidence.machine
    holders, action = _HOLDERS[outside.by]
    threads = machine.intra_op_threads
    is_parallel = any(demand.busy_threads.get(own.pid, 0) > 1 and threads.get(own.pid) != 1 for own in trainers)
    return new_finding(
        f"{place}{holders.format(outside.cores)}: the training, or its workers, wait {percent(share)} of the time"
        " for a core",
        action,
        *([_ONE_THREAD] if is_parallel else []),
        share=share,
        evidence={
            "delay_ratio": evidence.training.delay_ratio if here else machine.delay_ratio,
            "cores": demand.cores,
            "cores_wanted": demand.wanted,
            "cores_taken": outside.cores,
            "cpu_limit_cores": taken.limit if outside.by == "limit" and taken is not None else None,
            **machine.facts,
        },
    )


def _benign(evidence: Evidence, demand: Demand) -> Finding | None:
    trainers = [own.training for own in evidence.machine.trainers]
    cpu = [thread.cpu_ratio for thread in trainers if thread.cpu_ratio is not None]
    delays = [thread.delay_ratio for thread in trainers if thread.delay_ratio is not None]
    if not 1 < len(trainers) == len(cpu) == len(delays) or lost_share(evidence.machine) is not None:
        return None
    if min(cpu) < NEARLY_ALL or max(delays) > SMALL:
        return None
    return new_finding(
        f"{len(trainers)} training processes at {percent(min(cpu))} CPU or more do not slow each other down: they"
        f" wait {percent(max(delays))} of the time for a core",
        "change nothing: each has its own core",
        severity="benign",
        trainings=len(trainers),
        delay_ratio=max(delays),
        cores=demand.cores,
    )


def _shared_gpu(evidence: Evidence) -> Finding | None:
    """Another program computes on the training's GPU, or another training of the run does (info).

    Processes on one GPU take turns: while one computes, the other waits. On the GPUs of other ranks only other programs
    are reported.
    """
    for gpu in evidence.gpu.rows:
        found = _strangers(evidence, gpu, evidence.machine) or _siblings(evidence, gpu)
        if found is not None:
            return found
    elsewhere = ((row, each) for each in evidence.machines for row in used_gpus(evidence.view, each.node))
    taken = (_strangers(evidence, gpu, machine) for gpu, machine in elsewhere)
    return max(filter(None, taken), key=lambda finding: finding.share_of_step or 0.0, default=None)


def _strangers(evidence: Evidence, gpu: GpuRow, machine: Machine) -> Finding | None:
    """Programs that compute while the training has work for the GPU; using its idle time does no harm.

    Worked example: they take half of the time, and for 20 to 30 % of it the training has no work for the GPU. So 20 to
    50 % of each step is lost, unless its own kernels ran at the same time, as under MPS. Without GPU times only a GPU
    that nearly always runs a kernel proves any harm.
    """
    known, taken = [each for each in gpu.others if each.computing.low], gpu.taken_ratio
    own = sum(each.computing.low for each in gpu.holders if each.pid in gpu.run_pids)
    steps, used = evidence.gpu.steps if gpu in evidence.gpu.rows else None, utilisation(gpu)
    idle = steps.idle if steps is not None else Interval(1.0 - used if used is not None else 0.0, 1.0)
    lost = Interval(max(0.0, min(taken, 1.0 - own) - idle.high), min(taken, 1.0 - idle.low))
    if lost.high < REPORTED:
        return None
    pid = max(known, key=lambda each: each.computing.low).pid
    who = f"process {own_id(pid)}" if own_id(pid) else "another program"  # which the driver does not name here
    action = "choose another GPU (CUDA_VISIBLE_DEVICES), or wait for that program: nvidia-smi shows it"
    fix = without_cost(evidence, action, lost)
    return new_finding(
        f"{machine.place}{who} takes {percent(taken)} of GPU {gpu.latest.index}'s time: the training"
        f" {'may wait' if lost.low < SMALL else 'waits'} meanwhile",
        fix if steps is not None else fix.with_upper_bound(fix.gain and fix.gain.high),
        severity="critical" if (used or 0.0) >= NEARLY_ALL else "info",
        share=lost.high,
        evidence={"gpu": gpu.latest.index, "others_sm_ratio": taken, "others": len(known), **machine.facts},
    )


def _siblings(evidence: Evidence, gpu: GpuRow) -> Finding | None:
    known = (evidence.view.of(pid).process for pid in evidence.view.session.trainers() if pid != evidence.pid)
    others = [process for process in known if not process.ended and process.uses(gpu.latest)]
    if not others:
        return None
    who, how = "training", "CUDA_VISIBLE_DEVICES, unless each leaves this one idle"
    if evidence.world_size > len(others) and all(process.world_size == evidence.world_size for process in others):
        who, how = "rank", "torch.cuda.set_device(local_rank) first of all"
    return new_finding(
        f"{len(others) + 1} {who}s share GPU {gpu.latest.index}: while one computes, the others wait",
        f"give each {who} a GPU of its own: {how}",
        severity="info",
        gpu=gpu.latest.index,
        trainings=len(others) + 1,
        gpu_util=utilisation(gpu),
    )
