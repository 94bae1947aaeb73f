"""More threads of the run than cores: what asks for so many."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from tuimon.diagnosis.claims import waits_for_cores
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.run import WANTED_RATIO, Demand, Machine, Mask, worst_of
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rule import RUN_QUEUE, Rule
from tuimon.diagnosis.threshold import SMALL, Threshold
from tuimon.diagnosis.words import at, percent
from tuimon.records import Place

DELAY_SHARE = Threshold(
    0.25,
    "share of the time they want to run that threads wait for a core, from which it hurts",
    "measured in tests/scenarios on 2 cores: at most 0.21 where they are shared well (slow_augmentation), 0.57 and 0.71"
    " in two_greedy_trainings and too_many_threads",
)

#: The number that a line sets, where it is written there: ``torch.set_num_threads(8)``.
_NUMBER = re.compile(r"""(?:set_num_threads\(|NUM_THREADS["'\]\s,=]+)["']?(\d+)""")


class _Advice(NamedTuple):
    """A fix by which the run wants no more cores than there are."""

    action: str
    where: tuple[Place, ...] = ()
    is_in_program: bool = True  # else only a machine with more cores would do


def cpu_oversubscribed(evidence: Evidence) -> Finding | None:
    """The run has more threads that want to run than there are cores; of several nodes, on the worst.

    Fewer threads do the same work on the same cores: what they gain is what sharing costs (waiting at barriers, caches
    that others have emptied). No figure of the run shows it, so no gain is estimated: measured on two cores, one thread
    instead of eight gains nothing where operations take ms, and 5x where they take 0.1 ms, at the same delay. If the
    program has nothing to spare, only more cores are left, of which nobody knows a gain: that is no warning.
    """
    found = [machine for machine in evidence.run.machines if lost_share(machine) is not None]
    if not found:
        return None
    machine, place = worst_of(found, lambda each: lost_share(each) or 0.0)
    demand, lost = machine.demand, lost_share(machine)
    if demand is None or lost is None:
        return None
    here = machine is evidence.run.here
    advice, cores = _fewer(machine, demand), f"{demand.cores} core{'s' * (demand.cores > 1)}"
    return Finding(
        severity="warning" if advice.is_in_program else "info",
        headline=(
            f"{place}{_shared(machine) or f'{_who(machine, demand)} want {demand.wanted:.1f} of {cores}'}:"
            f" they wait for {'it' if demand.cores == 1 else 'one'} {percent(lost)} of the time"
        ),
        fixes=(Fix(advice.action),),
        where=advice.where,
        share_of_step=waits_for_cores(evidence, "own") if here else machine.delay_ratio,
        evidence={
            "cores": demand.cores,
            "cores_used": demand.cpu,
            "cores_waited_for": demand.delay,
            "busy_threads": sum(demand.busy_threads.values()),
            **({"kept_to": machine.mask.text} if machine.mask is not None else {}),
            **machine.facts,
        },
        elsewhere=not here,
    )


def lost_share(machine: Machine) -> float | None:
    """Share of the time they want to run that its threads wait for each other; None where there are cores enough."""
    demand = machine.demand
    if demand is None or demand.wanted < WANTED_RATIO * demand.cores:
        return None
    lost = demand.delay * machine.waits_from_outside.own_part / demand.wanted
    return lost if lost >= DELAY_SHARE else None


def _shared(machine: Machine) -> str | None:
    """``3 workers and the training share core 0 of 16``; None where nothing keeps them there."""
    if machine.mask is None:
        return None
    trainers, workers = len(machine.trainers), len(machine.workers)
    training = "the training" if trainers == 1 else f"{trainers} training processes"
    loading = f"{workers} worker{'s' * (workers > 1)} and " if workers else "threads of " * (trainers == 1)
    return f"{loading}{training} share {machine.mask.text}"


def _who(machine: Machine, demand: Demand) -> str:
    """``2 trainings x 2 threads``; ``2 threads of the training and 4 other processes``.

    A thread wants one core at most: what they cannot want alone is wanted by some that run now and then.
    """
    trainers = [p for p in machine.trainers if p in demand.busy_threads]
    each = {demand.busy_threads[p] for p in trainers}
    rest = len(demand.busy_threads) - len(trainers)
    total = sum(demand.busy_threads[p] for p in trainers)
    if len(trainers) > 1:
        text = (
            f"{len(trainers)} trainings x {each.pop()} threads" if len(each) == 1 else f"{total} threads of trainings"
        )
    else:
        text = f"{total} thread{'s' * (total != 1)} of the training"
    parts = [text]
    if rest:
        parts.append(f"{rest} other {'process' if rest == 1 else 'processes'}")
    if demand.wanted > sum(demand.busy_threads.values()):
        parts.append("others that run now and then")
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else text


def _fewer(machine: Machine, demand: Demand) -> _Advice:
    """The fix, and its line; nothing is advised that is so already."""
    if machine.mask is not None:
        return _more_of_the_cores(machine, machine.mask)
    trainers = [p for p in machine.trainers if p in demand.busy_threads]
    workers = len(demand.busy_threads) - len(trainers)
    if workers > demand.cores:
        where = machine.set_at("workers")[:1]
        fewer = f"use fewer workers: {max(1, demand.cores - 1)} on {demand.cores} cores"
        return _Advice(f"{fewer}{f', at {at(where[0])}' if where else ''}", where)
    each = max(1, demand.cores // max(1, len(trainers)))
    computing = {pid: machine.intra_op_threads.get(pid, demand.busy_threads[pid]) for pid in trainers}
    if any(number > each for number in computing.values()):
        return _fewer_threads(machine, each, len(trainers))
    beside = sum(max(0, demand.busy_threads[pid] - number) for pid, number in computing.items())
    if len(trainers) > demand.cores:
        fewer = ", or train fewer of them at once"
    else:
        fewer = f", or run fewer threads beside torch's own: {beside} want to run" if beside else ""
    return _Advice(f"use {math.ceil(demand.wanted)} cores{fewer}", is_in_program=bool(fewer))


def _more_of_the_cores(machine: Machine, mask: Mask) -> _Advice:
    """The run is kept from most of what tuimon may use, by its program, by who started it, or by a cpuset."""
    where = machine.set_at("cores")[:1]
    by = f"os.sched_setaffinity at {at(where[0])}" if where else "taskset, sched_setaffinity or a cpuset"
    return _Advice(f"let it use more than {mask.text}: {by} keeps it from the others", where)


def _fewer_threads(machine: Machine, each: int, trainings: int) -> _Advice:
    """Fewer threads for an operation, by what sets their number: the program's code, its environment, or nothing."""
    call, variable = f"call torch.set_num_threads({each})", f"set OMP_NUM_THREADS={each}"
    now = max(machine.intra_op_threads.values(), default=None)
    where = tuple(place for place in machine.set_at("threads") if _may_set(place, now))[:1]
    if where:
        by = call if "set_num_threads" in where[0].source else variable
        return _Advice(f"{by} at {at(where[0])}{f', which sets {now}' if now else ''}", where)
    if machine.omp_num_threads is not None and machine.omp_num_threads > each:
        whose = "each training's" if trainings > 1 else "the training's"
        return _Advice(f"{variable} in {whose} environment, where it is {machine.omp_num_threads}")
    either = call if machine.omp_num_threads == each else f"{call}, or {variable}"
    return _Advice(f"{either}{', in each training' if trainings > 1 else ''}")


def _may_set(place: Place, now: int | None) -> bool:
    """True if a line may have set the number of threads there is now: one for workers sets another, such as 1."""
    number = _NUMBER.search(place.source)
    return now is None or number is None or int(number[1]) == now


CPU_OVERSUBSCRIBED = Rule(
    title="Too few cores",
    judge=cpu_oversubscribed,
    explanation=(
        "The run has more threads that want to run than there are cores, so they share these. It rests on the CPU time"
        " and run-queue delay (schedstat) of all its threads, against the cores of the machine; what others hold of"
        " these is subtracted. On several nodes each is judged by itself, and the worst is named."
    ),
    needs=(RUN_QUEUE,),
    thresholds=(WANTED_RATIO, DELAY_SHARE, SMALL),
    contradicts_order=True,
    takes=lambda cell, finding: (
        not finding.elsewhere
        and cell.doing == "own"
        and (cell.via == ("core",) or ("core" in cell.via and "kept_to" not in finding.evidence))
    ),
)
