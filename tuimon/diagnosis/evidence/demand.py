"""How many cores the run's threads use and wait for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tuimon.records import Threads
from tuimon.session.processes.core_waits import WANTS_TO_RUN


class Demand(NamedTuple):
    """What the run wants of the machine, in cores."""

    cores: int
    cpu: float  # used
    delay: float  # wanted, but waited for
    busy_threads: dict[int, int]  # process -> threads that want to run

    @property
    def wanted(self) -> float:
        """Used and waited for."""
        return self.cpu + self.delay


class TrainingThread(NamedTuple):
    """The main thread of one training process; None where the kernel does not report it."""

    cpu_ratio: float | None
    delay_ratio: float | None  # share of time in the run queue, waiting for a core


def core_demand(processes: Iterable[Threads], cores: int | None) -> Demand | None:
    """Demand of the live processes of the run; None where the kernel reports no run-queue delay (schedstat)."""
    cpu = delay = 0.0
    measured = False
    busy: dict[int, int] = {}
    for process in processes:
        for row in process.threads:
            if row.cpu_ratio is None or row.delay_ratio is None:
                continue
            measured = True
            cpu += row.cpu_ratio * row.count
            delay += row.delay_ratio * row.count
            if row.cpu_ratio + row.delay_ratio >= WANTS_TO_RUN:
                busy[process.pid] = busy.get(process.pid, 0) + row.count
    if not measured or cores is None:
        return None
    return Demand(cores, cpu, delay, busy)


def training_thread(threads: Threads | None, tid: int) -> TrainingThread:
    """The training thread of one process; ``tid``: its id."""
    main = next((row for row in threads.threads if row.tid == tid), None) if threads is not None else None
    return TrainingThread(main.cpu_ratio, main.delay_ratio) if main else TrainingThread(None, None)


def free_cores(processes: Iterable[Threads], cores: int) -> float:
    """Cores that the run could still get: those of the machine less what its threads use and what they wait for."""
    free = float(cores)
    for process in processes:
        free -= process.cpu_ratio or 0.0
        free -= sum(row.delay_ratio or 0.0 for row in process.threads)
    return free
