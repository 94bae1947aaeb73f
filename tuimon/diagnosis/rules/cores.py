"""Rules about the cores: more threads than cores, others on the machine, and neighbours that do no harm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuimon.diagnosis.evidence.core_waits import WANTED_RATIO, OutsideWaits
from tuimon.diagnosis.evidence.demand import Demand
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.machines import Machine, worst_of
from tuimon.diagnosis.evidence.run import RunEvidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.needs import RUN_QUEUE
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules.shared_gpu import STRANGER_CRITICAL, STRANGER_SHARE, shared_gpu
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import at, percent
from tuimon.records import Place
from tuimon.session.processes.core_waits import WANTS_TO_RUN

DELAY_SHARE = Threshold(
    0.25,
    "share of the time they want to run that threads wait for a core, from which it hurts",
    "measured in tests/scenarios on 2 cores: at most 0.21 where they are shared well (slow_augmentation), 0.57 and 0.71"
    " in two_greedy_trainings and too_many_threads",
)
CRITICAL_WANTED_RATIO = Threshold(
    2.0,
    "times the cores there are that the run's threads want, from which it is critical",
    "our choice: every thread runs half of the time at best",
)
NEIGHBOUR_DELAY = Threshold(
    0.20,
    "share of its time that the training thread waits for a core, from which others hold it up",
    "our choice: a fifth of the step is what a critical finding's fix gains at least",
)
BENIGN_DELAY = Threshold(
    0.05,
    "share of time in the run queue up to which trainings side by side do not hurt each other",
    "our choice: less than the 5 % that a warning's fix gains",
)
WORRYING_CPU = Threshold(
    0.90,
    "CPU of each training thread from which one may worry",
    "our choice: what process monitors show as a full core",
)


#: A thread that has no core is waited for at the end of each operation. Measured beside busy programs on two cores, one
#: thread instead of two: 2x where an operation takes 50 ms, 5x for ms, 30x for 0.1 ms; so no gain is estimated.
_ONE_THREAD = (
    Fix(
        "torch.set_num_threads(1), or OMP_NUM_THREADS=1: at each operation its threads wait for the one without a core"
    ),
)


def cpu_oversubscribed(evidence: Evidence) -> Finding | None:
    """The run has more threads that want to run than there are cores; of several nodes, on the worst.

    Fewer threads do the same work on the same cores: what they gain is what sharing costs (waiting at barriers, caches
    that others have emptied). No figure of the run shows it, so no gain is estimated: measured on two cores, one thread
    instead of eight gains nothing where operations take ms, and 5x where they take 0.1 ms, at the same delay.
    """
    found = [machine for machine in evidence.run.machines if _lost_share(machine) is not None]
    if not found:
        return None
    machine, place = worst_of(found, lambda each: _lost_share(each) or 0.0)
    demand, lost = machine.demand, _lost_share(machine)
    if demand is None or lost is None:
        return None
    here = machine is evidence.run.here
    action, where = _fewer(machine, demand)
    return Finding(
        rule="cpu_oversubscribed",
        severity="critical" if demand.wanted >= CRITICAL_WANTED_RATIO * demand.cores else "warning",
        headline=(
            f"{place}{_who(machine, demand)} want {demand.wanted:.1f} of {demand.cores} cores:"
            f" they wait for one {percent(lost)} of the time"
        ),
        action=action,
        where=where,
        share_of_step=evidence.training_thread.delay_ratio if here else machine.delay_ratio,
        evidence={
            "cores": demand.cores,
            "cores_used": demand.cpu,
            "cores_waited_for": demand.delay,
            "busy_threads": sum(demand.busy_threads.values()),
            **machine.facts,
        },
        elsewhere=not here,
    )


def _lost_share(machine: Machine) -> float | None:
    """Share of the time they want to run that its threads wait for each other; None where there are cores enough."""
    demand = machine.demand
    if demand is None or demand.wanted < WANTED_RATIO * demand.cores:
        return None
    lost = demand.delay * machine.waits_from_outside.own_part / demand.wanted
    return lost if lost >= DELAY_SHARE else None


def neighbour(evidence: Evidence) -> Finding | None:
    """Others take the cores or the GPU; or several trainings at 99 % side by side do not hurt each other (benign)."""
    if evidence.phases is None:
        return None
    found = [machine for machine in evidence.run.machines if _is_taken(machine, evidence)]
    if found:
        return _taken_cores(*worst_of(found, lambda each: _delay(each, evidence) or 0.0), evidence)
    demand = evidence.run.demand
    return shared_gpu(evidence) or (_benign(evidence.run, demand) if demand is not None else None)


def _is_taken(machine: Machine, evidence: Evidence) -> bool:
    """Whether others hold cores of a node that the training waits for, and not its own threads first of all."""
    return _lost_share(machine) is None and (_taken_share(machine, evidence) or 0.0) >= NEIGHBOUR_DELAY


def _taken_share(machine: Machine, evidence: Evidence) -> float | None:
    """Share of time that the training waits for cores which others hold; None where its waits are unknown."""
    delay = _delay(machine, evidence)
    if delay is None:
        return None
    by_workers = _workers_delay(evidence, delay) if machine is evidence.run.here else 0.0
    return min(1.0, delay + by_workers) * machine.waits_from_outside.part


def _workers_delay(evidence: Evidence, delay: float) -> float:
    """Share of time that the training waits for data of which the workers, ready to run, wait for a core."""
    data, ran, cpu = evidence.phase("data"), evidence.workers.ran_ratio, evidence.workers.cpu_ratio
    if data is None or not ran or cpu is None:
        return 0.0
    return max(0.0, data.share - delay) * max(0.0, 1.0 - cpu / ran)


def _taken_cores(machine: Machine, place: str, evidence: Evidence) -> Finding | None:
    demand, share = machine.demand, _taken_share(machine, evidence)
    if demand is None or share is None:
        return None
    here = machine is evidence.run.here
    trainers = (evidence.pid,) if here else machine.trainers
    who = "the training thread waits" if len(trainers) == 1 else f"its {len(trainers)} training threads wait"
    delay = _delay(machine, evidence) or 0.0
    for_whom = "one" if share <= delay else "one, or for workers without one,"
    outside, limit = machine.waits_from_outside, machine.cores_taken.limit if machine.cores_taken else None
    return Finding(
        rule="neighbour",
        severity="warning",
        headline=f"{place}{_outsiders(outside, limit)}: {who} for {for_whom} {percent(share)} of the time",
        action=_about(outside, limit, "here" if here else "there"),
        share_of_step=share,
        evidence={
            "delay_ratio": delay,
            "cores": demand.cores,
            "cores_wanted": demand.wanted,
            "cores_taken": outside.cores,
            **machine.facts,
        },
        other_fixes=_ONE_THREAD if _computes_in_parallel(demand, trainers, evidence) else (),
    )


def _outsiders(outside: OutsideWaits, limit: float | None) -> str:
    """Who holds the cores."""
    match outside.by:
        case "programs":
            return f"other programs hold {outside.cores:.1f} cores"
        case "host":
            return f"the host of this virtual machine gives {outside.cores:.1f} cores to others"
        case "limit":
            return f"the container's CPU limit{f' of {limit:g} cores' if limit else ''} holds cores back"
        case _:
            return "other programs, or a CPU limit, hold the cores"


def _about(outside: OutsideWaits, limit: float | None, where: str) -> str:
    """What to do about them."""
    match outside.by:
        case "programs":
            return f"check what else runs {where} (top)"
        case "host":
            return "use a machine whose cores are not shared (steal in top)"
        case "limit":
            return f"raise the container's CPU limit{f' from {limit:g} cores' if limit else ''}, or use fewer threads"
        case _:
            return f"check what else runs {where} (top), or the CPU limit of the container"


def _computes_in_parallel(demand: Demand, trainers: Sequence[int], evidence: Evidence) -> bool:
    """Whether a training shares out its operations: of its busy threads some besides the main one run no Python."""
    if max((demand.busy_threads.get(pid, 0) for pid in trainers), default=0) < 2:
        return False
    if evidence.pid not in trainers:
        return True
    beside = [row for row in evidence.thread_rows if row.tid != evidence.training_tid and row.place is None]
    return any((row.cpu_ratio or 0.0) + (row.delay_ratio or 0.0) >= WANTS_TO_RUN for row in beside)


def _delay(machine: Machine, evidence: Evidence) -> float | None:
    """Share of time that the training waits for a core there: the process in focus, elsewhere most of the ranks."""
    return evidence.training_thread.delay_ratio if machine is evidence.run.here else machine.delay_ratio


def is_held_up(evidence: Evidence) -> bool:
    """Whether the training thread waits for a core so often that none can be free for more."""
    return (evidence.training_thread.delay_ratio or 0.0) >= NEIGHBOUR_DELAY


def _benign(run: RunEvidence, demand: Demand) -> Finding | None:
    trainers = run.training_threads
    cpu = [thread.cpu_ratio for thread in trainers if thread.cpu_ratio is not None]
    delays = [thread.delay_ratio for thread in trainers if thread.delay_ratio is not None]
    if len(trainers) < 2 or len(cpu) < len(trainers) or len(delays) < len(trainers):
        return None
    if min(cpu) < WORRYING_CPU or max(delays) > BENIGN_DELAY:
        return None
    return Finding(
        rule="neighbour",
        severity="benign",
        headline=(
            f"{len(trainers)} {_kind(run)} at {percent(min(cpu))} CPU and more do not hurt each other:"
            f" they wait for a core {percent(max(delays))} of the time"
        ),
        action="nothing: each has a core of its own",
        evidence={"trainings": len(trainers), "delay_ratio": max(delays), "cores": demand.cores},
    )


def _kind(run: RunEvidence) -> str:
    """What the training processes are: all ranks, or trainings of their own."""
    known = (run.processes.get(pid) for pid in run.trainers)
    return "ranks" if all(process is not None and (process.world_size or 1) > 1 for process in known) else "trainings"


def _who(machine: Machine, demand: Demand) -> str:
    """``2 trainings x 2 threads``; ``2 threads of the training and 4 other processes``."""
    trainers = [p for p in machine.trainers if p in demand.busy_threads]
    each = {demand.busy_threads[p] for p in trainers}
    rest = len(demand.busy_threads) - len(trainers)
    total = sum(demand.busy_threads[p] for p in trainers)
    if len(trainers) > 1:
        text = (
            f"{len(trainers)} trainings x {each.pop()} threads" if len(each) == 1 else f"{total} threads of trainings"
        )
    else:
        text = f"{total} threads of the training"
    return f"{text} and {rest} other processes" if rest else text


def _fewer(machine: Machine, demand: Demand) -> tuple[str, tuple[Place, ...]]:
    """What makes them want no more cores than there are, and where; nothing that is so already."""
    trainers = [p for p in machine.trainers if p in demand.busy_threads]
    workers = len(demand.busy_threads) - len(trainers)
    if workers > demand.cores:
        return f"use fewer workers: {max(1, demand.cores - 1)} on {demand.cores} cores", machine.set_at("workers")[:1]
    each = max(1, demand.cores // max(1, len(trainers)))
    computing = {pid: machine.intra_op_threads.get(pid, demand.busy_threads[pid]) for pid in trainers}
    if any(number > each for number in computing.values()):
        return _fewer_threads(machine, each)
    beside = sum(max(0, demand.busy_threads[pid] - number) for pid, number in computing.items())
    if len(trainers) > demand.cores:
        fewer = ", or train fewer of them at once"
    else:
        fewer = f", or run fewer threads beside those of torch's operations: {beside} want to run" if beside else ""
    return f"use {math.ceil(demand.wanted)} cores{fewer}", ()


def _fewer_threads(machine: Machine, each: int) -> tuple[str, tuple[Place, ...]]:
    """Fewer threads for an operation, by what sets their number: the program's code, its environment, or nothing."""
    call, variable = f"torch.set_num_threads({each})", f"OMP_NUM_THREADS={each}"
    where = machine.set_at("threads")[:1]
    if where:
        by = call if "set_num_threads" in where[0].source else variable
        now = max(machine.intra_op_threads.values(), default=None)
        return f"{by} at {at(where[0])}{f', which sets {now}' if now else ''}", where
    if machine.omp_num_threads is not None and machine.omp_num_threads > each:
        return f"{variable} in each training's environment, where it is {machine.omp_num_threads}", ()
    return f"{call}, or {variable}, in each training", ()


RULES = (
    Rule(
        name="cpu_oversubscribed",
        title="Too few cores",
        order=110,
        judge=cpu_oversubscribed,
        explanation=(
            "The run has more threads that want to run than there are cores, so they share these. It rests on the CPU"
            " time and run-queue delay (schedstat) of all its threads, against the cores of the machine; what others"
            " hold of these is taken off. Of a run on several nodes each is judged by itself, and the worst is named."
        ),
        needs=(RUN_QUEUE,),
        thresholds=(WANTED_RATIO, DELAY_SHARE, CRITICAL_WANTED_RATIO),
        contradicts_order=True,
    ),
    Rule(
        name="neighbour",
        title="Neighbours",
        order=120,
        judge=neighbour,
        explanation=(
            "Other programs take the cores or the GPU; or several trainings at full CPU side by side do not hurt each"
            " other, which is benign. It rests on the run-queue delay of the training thread, of which others explain"
            " no more than the cores they take: other programs (/proc/stat less the run and tuimon), a VM's"
            " host (steal), a container's CPU limit (cpu.stat); and on NVML's processes. A log without these counts"
            " where the run itself leaves cores free. Of several nodes each is judged, elsewhere by the median rank."
        ),
        needs=(RUN_QUEUE,),
        thresholds=(NEIGHBOUR_DELAY, WANTED_RATIO, BENIGN_DELAY, WORRYING_CPU, STRANGER_SHARE, STRANGER_CRITICAL),
        from_outside=True,
    ),
)
