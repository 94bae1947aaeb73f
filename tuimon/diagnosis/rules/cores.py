"""More threads of the run than cores: what asks for so many."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from tuimon.diagnosis.claims import waits_for_cores
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.run import WANTED_RATIO, Demand, Machine, worst_of
from tuimon.diagnosis.evidence.workers import ONE_THREAD
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rule import RUN_QUEUE, Rule
from tuimon.diagnosis.threshold import SMALL, Threshold
from tuimon.diagnosis.words import percent
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
    are_workers = here and evidence.data.workers.crowd_cores
    advice = _Advice(ONE_THREAD) if are_workers else _fewer(machine, demand)
    threads, processes = sum(demand.busy_threads.values()), len(demand.busy_threads)
    share = f"want {demand.wanted:.1f} of {demand.cores} core{'s' * (demand.cores > 1)}"
    if machine.mask is not None:
        share = f"share {machine.mask.text}"
    return Finding(
        severity="warning" if advice.is_in_program else "info",
        headline=(
            f"{place}{threads} threads of {processes} process{'es' * (processes > 1)} {share}: they wait for one"
            f" {percent(lost)} of the time"
        ),
        fixes=(Fix(advice.action),),
        where=advice.where,
        share_of_step=waits_for_cores(evidence, "own") if here else machine.delay_ratio,
        evidence={
            "cores": demand.cores,
            "cores_used": demand.cpu,
            "cores_waited_for": demand.delay,
            "busy_threads": threads,
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


def _fewer(machine: Machine, demand: Demand) -> _Advice:
    """The fix, and the line that sets what is too much."""
    if machine.mask is not None:  # by its program, by who started it, or by a cpuset
        kept = f"let it use more than {machine.mask.text}: os.sched_setaffinity, taskset or a cpuset keeps it"
        return _Advice(f"{kept} from the others", machine.set_at("cores")[:1])
    trainers = [p for p in machine.trainers if p in demand.busy_threads]
    if len(demand.busy_threads) - len(trainers) > demand.cores:
        fewer = f"use fewer workers: {max(1, demand.cores - 1)} on {demand.cores} cores"
        return _Advice(fewer, machine.set_at("workers")[:1])
    each = max(1, demand.cores // max(1, len(trainers)))
    computing = [machine.intra_op_threads.get(pid, demand.busy_threads[pid]) for pid in trainers]
    if any(number > each for number in computing):
        now = max(machine.intra_op_threads.values(), default=None)
        set_here = [(place, _NUMBER.search(place.source)) for place in machine.set_at("threads")]
        # a line that sets another number, such as 1, is one for workers
        where = tuple(place for place, number in set_here if now is None or number is None or int(number[1]) == now)[:1]
        call = f"call torch.set_num_threads({each}), or set OMP_NUM_THREADS={each}"
        if now in machine.in_environment:
            call += f", which is {now} in the environment that it was started with"
        return _Advice(f"{call}{', in each training' if len(trainers) > 1 else ''}", where)
    more = f"use {math.ceil(demand.wanted)} cores"
    if len(trainers) > demand.cores:
        return _Advice(f"{more}, or train fewer of them at once")
    return _Advice(more, is_in_program=False)


CPU_OVERSUBSCRIBED = Rule(
    title="Too few cores",
    judge=cpu_oversubscribed,
    needs=(RUN_QUEUE,),
    thresholds=(WANTED_RATIO, DELAY_SHARE, SMALL),
    contradicts_order=True,
    takes=lambda cell, finding: (
        not finding.elsewhere
        and cell.doing == "own"
        and (cell.via == ("core",) or ("core" in cell.via and "kept_to" not in finding.evidence))
    ),
)
