"""Rules about the cores: more threads than cores, others on the machine, and neighbours that do no harm."""

from __future__ import annotations

from tuimon.diagnosis.evidence.demand import Demand
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.machines import Machine, worst_of
from tuimon.diagnosis.evidence.run import RunEvidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.needs import RUN_QUEUE
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules.shared_gpu import STRANGER_CRITICAL, STRANGER_SHARE, shared_gpu
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import percent

WANTED_RATIO = Threshold(
    1.3,
    "times the cores there are that the run's threads want, from which these are too few",
    "measured in tests/scenarios on 2 cores: up to 1.2 where trainer and workers share them well (slow_augmentation,"
    " big_gradients), 1.8 and more in two_greedy_trainings and too_many_threads",
)
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
    that others have emptied). No figure of the run tells it, so no gain is estimated: measured on two cores, one thread
    instead of eight gains nothing where operations take ms, and 5x where they take 0.1 ms, at the same delay.
    """
    found = [machine for machine in evidence.run.machines if _lost_share(machine.demand) is not None]
    if not found:
        return None
    machine, place = worst_of(found, lambda each: _lost_share(each.demand) or 0.0)
    demand, lost = machine.demand, _lost_share(machine.demand)
    if demand is None or lost is None:
        return None
    here = machine is evidence.run.here
    return Finding(
        rule="cpu_oversubscribed",
        severity="critical" if demand.wanted >= CRITICAL_WANTED_RATIO * demand.cores else "warning",
        headline=(
            f"{place}{_who(machine, demand)} want {demand.wanted:.1f} of {demand.cores} cores:"
            f" they wait for one {percent(lost)} of the time"
        ),
        action=_fewer(machine, demand),
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


def _lost_share(demand: Demand | None) -> float | None:
    """Share of the time they want to run that threads wait for a core; None where there are cores enough."""
    if demand is None or demand.wanted < WANTED_RATIO * demand.cores:
        return None
    lost = demand.delay / demand.wanted
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
    """Whether the training waits for cores on a node that the run itself leaves free."""
    delay = _delay(machine, evidence)
    if delay is None or delay < NEIGHBOUR_DELAY:
        return False
    return machine.demand is not None and machine.demand.wanted < WANTED_RATIO * machine.demand.cores


def _taken_cores(machine: Machine, place: str, evidence: Evidence) -> Finding | None:
    demand, delay = machine.demand, _delay(machine, evidence)
    if demand is None or delay is None:
        return None
    here = machine is evidence.run.here
    busy = [demand.busy_threads.get(pid, 0) for pid in ((evidence.pid,) if here else machine.trainers)]
    who = "the training thread waits" if len(busy) == 1 else f"its {len(busy)} training threads wait"
    return Finding(
        rule="neighbour",
        severity="warning",
        headline=(f"{place}other programs hold the cores: {who} for one {percent(delay)} of the time"),
        action=f"look what else runs {'here' if here else 'there'} (top), or at the CPU limit of the container",
        share_of_step=delay,
        evidence={
            "delay_ratio": delay,
            "cores": demand.cores,
            "cores_wanted": demand.wanted,
            **machine.facts,
        },
        other_fixes=_ONE_THREAD if max(busy) > 1 else (),
    )


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
            f"{len(trainers)} trainings at {percent(min(cpu))} CPU and more do not hurt each other:"
            f" they wait for a core {percent(max(delays))} of the time"
        ),
        action="nothing: each has a core of its own",
        evidence={"trainings": len(trainers), "delay_ratio": max(delays), "cores": demand.cores},
    )


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


def _fewer(machine: Machine, demand: Demand) -> str:
    trainers = [p for p in machine.trainers if p in demand.busy_threads]
    workers = len(demand.busy_threads) - len(trainers)
    if workers > demand.cores:
        return f"use fewer workers: {max(1, demand.cores - 1)} on {demand.cores} cores"
    each = max(1, demand.cores // max(1, len(trainers)))
    return f"torch.set_num_threads({each}), or OMP_NUM_THREADS={each}, in each training"


RULES = (
    Rule(
        name="cpu_oversubscribed",
        title="Too few cores",
        order=110,
        judge=cpu_oversubscribed,
        explanation=(
            "The run has more threads that want to run than there are cores, so they share these. It rests on the CPU"
            " time and run-queue delay (schedstat) of all its threads, against the cores of the machine. Of a run on"
            " several nodes each is judged by itself, and the worst is named."
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
            " other, which is benign. It rests on the run-queue delay of the training thread while the run itself wants"
            " no more than the cores there are, and on NVML's processes of its GPU. Of a run on several nodes each is"
            " judged: elsewhere by the median rank. It abstains before the first step."
        ),
        needs=(RUN_QUEUE,),
        thresholds=(NEIGHBOUR_DELAY, WANTED_RATIO, BENIGN_DELAY, WORRYING_CPU, STRANGER_SHARE, STRANGER_CRITICAL),
        from_outside=True,
    ),
)
