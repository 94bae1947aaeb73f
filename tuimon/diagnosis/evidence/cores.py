"""How many cores the run's threads use and wait for; how much of that others cause, and who."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.diagnosis.threshold import NEARLY_ALL, SMALL, Threshold
from tuimon.records import ThreadCpu, Threads
from tuimon.session.machines import CoresTaken
from tuimon.session.threads import WANTS_TO_RUN

WANTED_RATIO = Threshold(
    1.3,
    "times the cores there are that the run's threads want, from which these are too few",
    "measured in tests/scenarios on 2 cores: up to 1.2 where trainer and workers share them well (slow_augmentation,"
    " big_gradients), 1.8 and more in two_greedy_trainings and too_many_threads",
)
#: Cores that lie idle on average, from which nobody waits long for one that another program uses: our choice.
_IDLE = 1.0
Outside = Literal["programs", "host", "limit", "unknown"]


class Demand(NamedTuple):
    """The cores that the run wants and gets."""

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


def core_demand(processes: Sequence[Threads], cores: int | None) -> Demand | None:
    """Demand of the live processes of the run; None where the kernel reports no run-queue delay (schedstat)."""
    rows = [
        (process.pid, row)
        for process in processes
        for row in process.threads
        if row.cpu_ratio is not None and row.delay_ratio is not None
    ]
    if not rows or cores is None:
        return None
    cpu = sum((row.cpu_ratio or 0.0) * row.count for _, row in rows)
    cpu += sum(process.childrens_cores for process in processes)
    wanting = _without_yielding(rows)
    busy: dict[int, int] = {}
    for pid, row in wanting:
        if _wanted(row) >= WANTS_TO_RUN:
            busy[pid] = busy.get(pid, 0) + row.count
    return Demand(cores, cpu, sum((row.delay_ratio or 0.0) * row.count for _, row in wanting), busy)


def _without_yielding(rows: Sequence[tuple[int, ThreadCpu]]) -> list[tuple[int, ThreadCpu]]:
    """The threads that run when they get a core.

    A thread that waits for work in a loop of yields stands in the run queue all the while, and hardly runs: one that
    wanted to would get much the same of the cores as the others do: 0.04 of it was measured of two threads of setfit's
    that stood in the run queue for 65 % of the time and ran for 2 %, beside a model that computes on 2 cores.
    """
    busy = [row for _, row in rows if _wanted(row) >= WANTS_TO_RUN]
    number = sum(row.count for row in busy)
    mean = sum((row.cpu_ratio or 0.0) * row.count for row in busy) / number if number else 0.0
    return [(pid, row) for pid, row in rows if _wanted(row) < WANTS_TO_RUN or (row.cpu_ratio or 0.0) >= SMALL * mean]


def _wanted(row: ThreadCpu) -> float:
    return (row.cpu_ratio or 0.0) + (row.delay_ratio or 0.0)


def training_thread(threads: Threads | None, tid: int) -> TrainingThread:
    """The training thread of one process; ``tid``: its id."""
    main = next((row for row in threads.threads if row.tid == tid), None) if threads is not None else None
    return TrainingThread(main.cpu_ratio, main.delay_ratio) if main else TrainingThread(None, None)


def free_cores(processes: Iterable[Threads], cores: int) -> float:
    """Cores that the run could still get: those of the machine less what its threads use and what they wait for."""
    free = float(cores)
    for process in processes:
        free -= (process.cpu_ratio or 0.0) + process.childrens_cores
        free -= sum(row.delay_ratio or 0.0 for row in process.threads)
    return free


class OutsideWaits(Struct, frozen=True, gc=False):
    """A run's waits for a core that others cause."""

    part: float = 0.0  # at most, of all its waits
    by: Outside = "unknown"  # who causes most of them; unknown where nothing of others is measured
    cores: float | None = None  # that they took

    @property
    def own_part(self) -> float:
        """The time that the run's threads wait for each other, at least."""
        return 1.0 - self.part


def waits_from_outside(demand: Demand | None, taken: CoresTaken | None) -> OutsideWaits:
    """The time that a run waits for cores which others use.

    A core that others use for a second keeps the run from it for a second at most. Any wait of its threads beyond
    that in total, they wait for one another: of 1 s of waits beside programs that use 0.2 s, 0.2 s are theirs. The same
    goes for cores that the host of a virtual machine gives to others, and for those that a CPU limit holds back.
    """
    if demand is None or demand.delay <= 0.0:
        return OutsideWaits()
    if taken is None:
        return OutsideWaits(_by_its_threads(demand))
    programs = taken.others if taken.idle is None or taken.idle < _IDLE else 0.0
    sources: dict[Outside, float] = {"limit": taken.held, "host": taken.stolen, "programs": programs}
    total = sum(sources.values())
    most = max(sources, key=lambda name: sources[name])
    return OutsideWaits(min(1.0, total / demand.delay), most, sources[most])


def _by_its_threads(demand: Demand) -> float:
    """The share where it is unknown what others used: all, unless the run itself wants as many cores as there are."""
    crowded = sum(demand.busy_threads.values()) > demand.cores
    wants_all = demand.cpu >= NEARLY_ALL * demand.cores or demand.wanted >= WANTED_RATIO * demand.cores
    return 0.0 if crowded or wants_all else 1.0
