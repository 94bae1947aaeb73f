"""Rules about the cores: more threads than cores, others on the machine, and neighbours that do no harm."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.common import cpu_count, percent
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rules.shared_gpu import shared_gpu
from tuimon.session.session import Session

#: The run wants this many times the cores there are (FIELD-NOTES: more than 1; measured: 2 workers and a trainer on 2
#: cores that share them well want up to 1.2).
WANTED_RATIO = 1.3
#: ... and its threads wait for a core for this share of the time in which they could run (proposal).
DELAY_SHARE = 0.25
#: A trainer that waits this much of its time for a core although the run leaves some free is held up by others.
NEIGHBOUR_DELAY = 0.20
#: Run-queue delay up to which trainings side by side do not hurt each other, and CPU from which one may worry.
BENIGN_DELAY = 0.05
WORRYING_CPU = 0.90
#: CPU and waiting for it from which a thread counts as one that wants to run.
_WANTS_TO_RUN = 0.30


class Demand(NamedTuple):
    """What the run asks of the machine, in cores."""

    cores: int
    cpu: float  # used
    delay: float  # wanted, but waited for
    busy_threads: dict[int, int]  # process -> threads that want to run

    @property
    def wanted(self) -> float:
        """Used and waited for."""
        return self.cpu + self.delay


def demand_of(session: Session) -> Demand | None:
    """Over all processes of the run; None where the kernel does not tell the run-queue delay."""
    cpu = delay = 0.0
    measured = False
    busy: dict[int, int] = {}
    for process in session.processes():
        threads = None if process.ended else session.process_threads(process.pid)
        for row in threads.threads if threads is not None else ():
            if row.cpu_ratio is None or row.delay_ratio is None:
                continue
            measured = True
            cpu += row.cpu_ratio * row.count
            delay += row.delay_ratio * row.count
            if row.cpu_ratio + row.delay_ratio >= _WANTS_TO_RUN:
                busy[process.pid] = busy.get(process.pid, 0) + row.count
    if not measured or session.header is None:
        return None
    return Demand(cpu_count(session), cpu, delay, busy)


def cpu_oversubscribed(session: Session, pid: int) -> Finding | None:
    """The run has more threads that want to run than there are cores.

    Evidence: CPU time and run-queue delay (schedstat) of all its threads, against the cores. Abstains without
    schedstat.
    """
    demand = demand_of(session)
    if demand is None or demand.wanted < WANTED_RATIO * demand.cores:
        return None
    lost = demand.delay / demand.wanted
    if lost < DELAY_SHARE:
        return None
    return Finding(
        rule="cpu_oversubscribed",
        severity="critical" if demand.wanted >= 2 * demand.cores else "warning",
        headline=(
            f"{_who(session, demand)} want {demand.wanted:.1f} of {demand.cores} cores:"
            f" they wait for one {percent(lost)} of the time"
        ),
        action=_fewer(session, demand),
        share_of_step=_own_delay(session, pid),
        evidence={
            "cores": demand.cores,
            "cores_used": demand.cpu,
            "cores_waited_for": demand.delay,
            "busy_threads": sum(demand.busy_threads.values()),
        },
    )


def neighbour(session: Session, pid: int) -> Finding | None:
    """Others take the cores; or several trainings at 99 % side by side that do not hurt each other (benign).

    Evidence: run-queue delay of the training thread, while the run itself wants no more than the cores there are; who
    else is on its GPU (see ``shared_gpu``). Abstains before the first step.
    """
    demand, own = demand_of(session), _own_delay(session, pid)
    if session.phases(pid) is None:
        return None
    if demand is None or own is None:
        return shared_gpu(session, pid)
    if own >= NEIGHBOUR_DELAY and demand.wanted < WANTED_RATIO * demand.cores:
        return Finding(
            rule="neighbour",
            severity="warning",
            headline=f"other programs hold the cores: the training thread waits for one {percent(own)} of the time",
            action="look what else runs here (top), or at the CPU limit of the container",
            share_of_step=own,
            evidence={"delay_ratio": own, "cores": demand.cores, "cores_wanted": demand.wanted},
        )
    return shared_gpu(session, pid) or _benign(session, demand)


def held_up(session: Session, pid: int) -> bool:
    """Whether the training thread waits for a core so often that none can be free for more."""
    return (_own_delay(session, pid) or 0.0) >= NEIGHBOUR_DELAY


def _benign(session: Session, demand: Demand) -> Finding | None:
    trainers = session.trainers()
    cpu = [ratio for p in trainers if (ratio := _main_cpu(session, p)) is not None]
    delays = [delay for p in trainers if (delay := _own_delay(session, p)) is not None]
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


def _own_delay(session: Session, pid: int) -> float | None:
    threads = session.process_threads(pid)
    return next((row.delay_ratio for row in threads.threads if row.tid == pid), None) if threads else None


def _main_cpu(session: Session, pid: int) -> float | None:
    threads = session.process_threads(pid)
    return next((row.cpu_ratio for row in threads.threads if row.tid == pid), None) if threads else None


def _who(session: Session, demand: Demand) -> str:
    """``2 trainings x 2 threads``; ``8 threads``; ``a training (2 threads) and 4 workers``."""
    trainers = [p for p in session.trainers() if p in demand.busy_threads]
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


def _fewer(session: Session, demand: Demand) -> str:
    trainers = [p for p in session.trainers() if p in demand.busy_threads]
    workers = len(demand.busy_threads) - len(trainers)
    if workers > demand.cores:
        return f"use fewer workers: {max(1, demand.cores - 1)} on {demand.cores} cores"
    each = max(1, demand.cores // max(1, len(trainers)))
    return f"torch.set_num_threads({each}), or OMP_NUM_THREADS={each}, in each training"
