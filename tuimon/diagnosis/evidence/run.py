"""The run as a whole: its processes, and its machines with their memory, cores and GPUs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.diagnosis.evidence.data import are_renewed
from tuimon.native_code import NativeUse
from tuimon.records import PIDS, Kept, Place, Setting, Threads
from tuimon.session.gpus import GpuRow
from tuimon.session.machines import GROWTH_S, CoresTaken, Growth, MachineTable, growth_going_on, steady_growth
from tuimon.session.series import WHOLE_RUN, WINDOW_S, Span
from tuimon.session.session import ProcessView, SessionView
from tuimon.session.tables import cached_query
from tuimon.session.threads import INTRA_OP, Held, ProcessThreads
from tuimon.text import plural
from tuimon.threshold import NEARLY_ALL, SMALL, UNUSUAL, Threshold

WANTED_RATIO = Threshold(
    1.3,
    "cores that the run's threads want, as a multiple of those there are, from which these are too few",
    "measured in tests/scenarios on 2 cores: up to 1.2 where trainer and workers share them well (slow_augmentation,"
    " big_gradients), 1.8 and more in two_greedy_trainings and too_many_threads",
)
#: Idle cores, on average, from which no thread waits long for a core that another program uses: our choice.
_IDLE = 1.0
#: ``tasks``: threads and processes; ``files``: open ones; ``shm``: shared memory.
Resource = Literal["memory", "gpu", "files", "tasks", "shm", "disk"]
#: Limited resources, by the name they have in the log; every other name is a disk's.
_RESOURCES: dict[str, Resource] = {PIDS: "tasks", "/dev/shm": "shm"}
#: The column of a process's readings for each resource.
_COLUMNS: dict[Resource, Held] = {"memory": "held_bytes", "files": "open_files", "tasks": "number"}
Outside = Literal["programs", "host", "limit", "unknown"]
#: Nodes (or late ranks) with at least this part of the worst one's loss count as equally bad: our choice.
ALIKE = 0.7
#: Seconds after the first step for caches to fill, of torch's allocator and of its operations: our choice.
_SETTLES_S = 5.0


class Demand(NamedTuple):
    """The cores that the run wants and the cores that it gets."""

    cores: int
    cpu: float  # used
    delay: float  # wanted, but only waited for
    busy_threads: dict[int, int]  # process -> threads that want to run

    @property
    def wanted(self) -> float:
        """Cores used and cores waited for."""
        return self.cpu + self.delay


class OutsideWaits(Struct, frozen=True, gc=False):
    """The waits of a run for a core that have causes outside the run."""

    part: float = 0.0  # of all its waits, at most
    by: Outside = "unknown"  # the cause of most of them; unknown if nothing outside was measured
    cores: float | None = None  # that were taken from the run


class Store(NamedTuple):
    """A limited resource, in bytes or by number."""

    resource: Resource
    total: float
    left: float
    name: str = ""  # "the machine", or the mount point of a file system
    pid: int | None = None  # the process that alone uses it

    @property
    def left_share(self) -> float:
        return self.left / self.total if self.total else 1.0


class Filling(NamedTuple):
    """A store that fills up."""

    store: Store
    growth: Growth  # of the process that fills it fastest
    per_s: float  # of all processes that fill it
    pid: int | None = None  # the process that fills it fastest; None if unknown
    others: int = 0

    @property
    def full_s(self) -> float:
        """Seconds until it is full at this rate."""
        return self.store.left / self.per_s


class Keeping(NamedTuple):
    """Lines that keep one more object each step; ``tensor``: their tensors stay, by the allocator's history."""

    kept: Kept | Literal["tensor"]
    places: tuple[Place, ...]

    @property
    def is_sure(self) -> bool:
        """True unless the program's text shows only a container that nothing empties."""
        return self.kept != "object"


class Machine(Struct, frozen=True, dict=True):
    """One node; each section is read once, on first use."""

    node: int
    host: str | None  # None if it is the only one
    trainers: tuple[ProcessView, ...]  # the training processes on it, by rank
    _view: SessionView

    @property
    def place(self) -> str:
        """The beginning of a headline: ``on node7: ``; empty on the only machine."""
        return f"on {self.host}: " if self.host is not None else ""

    @property
    def table(self) -> MachineTable:
        return self._view.session.nodes.of(self.node)

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        """The machine's limited resources; empty without recent figures."""
        memory, found = self.table.latest, list[Store]()
        if memory is None or self._view.now_s - memory.t > WINDOW_S:
            return ()
        if memory.total_bytes and memory.available_bytes is not None:
            found.append(Store("memory", memory.total_bytes, memory.available_bytes, "the machine"))
        if memory.limit_bytes and memory.limit_used_bytes is not None:
            left = max(0, memory.limit_bytes - memory.limit_used_bytes)
            found.append(Store("memory", memory.limit_bytes, left, "the container"))
        for each in memory.resources:
            found.append(
                Store(_RESOURCES.get(each.name, "disk"), each.limit, max(0, each.limit - each.used), each.name)
            )
        for pid in self._begun:
            latest = self._threads[pid].latest
            if latest is not None and (files := latest.open_files) is not None:
                found.append(Store("files", files[1], max(0, files[1] - files[0]), pid=pid))
        return tuple(sorted(found, key=lambda each: -each.left))

    @cached_property
    def filling(self) -> tuple[Filling, ...]:
        """The stores that have filled steadily since the first steps, first those that will be full first."""
        stores = {(store.resource, store.pid, store.resource == "disk" and store.name): store for store in self.stores}
        found = [filling for store in stores.values() if (filling := self._filling(store)) is not None]
        return tuple(sorted(found, key=lambda each: each.full_s))

    def _filling(self, store: Store) -> Filling | None:
        """The growth of a store; if several processes share it, of all that grow."""
        pids = self._begun if store.pid is None else (store.pid,)
        column = _COLUMNS.get(store.resource)
        growing = {pid: growth for pid in pids if column and (growth := self.grown(pid, column)) is not None}
        if growing:
            pid = max(growing, key=lambda each: growing[each].per_s)
            return Filling(store, growing[pid], sum(each.per_s for each in growing.values()), pid, len(growing) - 1)
        spans = (Span(last_s=GROWTH_S), WHOLE_RUN) if store.name and self._begun and store.resource != "memory" else ()
        for span in spans:  # the whole run as well, as checkpoints are written far apart
            growth = steady_growth(self.table.used(store.name, span), max(self._begun.values()))
            if growth is None:
                continue
            lately = Span(last_s=growth.seen_s)
            written = sum(self._threads[own.pid].written(lately)[1] for own in self.trainers)
            if store.resource != "disk" or 2 * written >= growth.risen:
                return Filling(store, growth, growth.per_s)
        return None

    @cached_property
    def _begun(self) -> dict[int, float]:
        """When the caches of each training process and its workers have filled, by process."""
        session = self._view.session
        ended = session.run_processes.has_ended
        live = (own for own in self.trainers if session.exit is not None or not ended(own.pid))
        first = ((own, own.stats.first_step_s) for own in live)
        begun = ((own, t + _SETTLES_S) for own, t in first if t is not None)
        return {pid: t for own, t in begun for pid in (own.pid, *(worker.pid for worker in own.workers))}

    def grown(self, pid: int, column: Held = "held_bytes", since_s: float = 0.0) -> Growth | None:
        """The steady growth of a process since its first steps; None if there is none.

        If the program's text shows a line that keeps objects, the growth need not be steady, but must go on.
        """
        readings, since_s = self._threads[pid].held(column), max(since_s, self._begun.get(pid, math.inf))
        is_kept = column == "held_bytes" and any(each.is_sure for each in self.keeping)
        goes_on = is_kept and pid in [own.pid for own in self.trainers]
        return steady_growth(readings, since_s) or (growth_going_on(readings, since_s) if goes_on else None)

    @property
    def _live(self) -> Iterator[int]:
        session = self._view.session
        return (pid for pid in session.pids_by_node()[self.node] if not session.run_processes.has_ended(pid))

    @cached_property
    def growing(self) -> tuple[int, Growth] | None:
        """The process whose memory grows fastest, even if the growth began before the first steps."""
        grown = ((pid, growth_going_on(self._threads[pid].held())) for pid in self._live)
        found = [(pid, growth) for pid, growth in grown if growth is not None]
        return max(found, key=lambda each: each[1].per_s, default=None)

    @cached_property
    def copying(self) -> tuple[int, Growth, int] | None:
        """A forked worker that copies its trainer's pages, its growth, and how many more bytes it may still copy.

        Its own pages grow, though its memory does not.
        """
        for pid in self._live if self._begun else ():
            since_s = max(self._begun.values())
            growth = growth_going_on(self._threads[pid].held("private_bytes"), since_s)
            held = self._threads[pid].held() if growth is not None else []
            grown = growth_going_on(held, since_s)
            if growth is not None and held and (grown is None or 2 * grown.risen < growth.risen):
                return pid, growth, max(0, int(held[-1].held - growth.held))
        return None

    def threads_at(self, pid: int) -> Place | None:
        """The user's line at which most threads of a process are, apart from the training thread."""
        sampled = self._view.session.stacks[pid]
        tids = [tid for tid in sampled.tids(now=True) if tid != sampled.tid]
        places = Counter(place for tid in tids if (place := sampled.threads.place_of(tid)) is not None)
        return places.most_common(1)[0][0] if places else None

    @cached_property
    def keeping(self) -> tuple[Keeping, ...]:
        """The lines that keep memory: by the program's text if that shows a graph, figures or hooks for sure.

        Else the line of the allocator's history that has grown most; else those by text that show only a container.
        """
        by_text = [Keeping(kept, tuple(places)) for kept, places in self._view.session.trie.keeping.items()]
        sure = [each for each in by_text if each.is_sure]
        histories = self._view.session.memory_history
        of_trainers = [histories[own.pid].lines for own in self.trainers if own.pid in histories]
        lines = [line for each in of_trainers for line in each if line.user]
        most = max(lines, key=lambda line: line.growth_bytes or 0, default=None)
        if not sure and most is not None and most.growth_bytes:
            sure = [Keeping("tensor", (Place(most.file, most.line, most.function, most.source),))]
        return tuple(sure or by_text)

    def steps_per_s(self, pid: int) -> float | None:
        """Steps per second of a training process; None if unknown."""
        summary = self._view.of(pid).steps
        return summary.per_second if summary is not None else None

    @cached_property
    def cores(self) -> int | None:
        """The number of cores that the run may use; None if there is no header."""
        return self.table.cores

    @cached_property
    def core_limit(self) -> str | None:
        """The cores to which the run is restricted, as ``cores 0-3,8 of 16``; None if it may use as many as tuimon."""
        numbers = self.table.latest.run_cores if self.table.latest is not None else None
        total = self.table.all_cores
        if numbers is None or self.cores is None or total is None or self.cores >= total:
            return None
        return f"{'core' if self.cores == 1 else 'cores'} {numbers} of {total}"

    @cached_property
    def workers(self) -> frozenset[int]:
        """The live DataLoader workers of its training processes."""
        return frozenset(worker.pid for own in self.trainers for worker in own.workers)

    @cached_property
    def live_threads(self) -> tuple[Threads, ...]:
        """Thread figures of every live process on the machine."""
        return tuple(self._view.live_threads(self.node))

    @cached_property
    def intra_op_threads(self) -> dict[int, int]:
        """The number of threads that share an operation, by training process; without those where it is unknown."""
        known = ((own.pid, own.process.intra_op_threads) for own in self.trainers)
        return {pid: number for pid, number in known if number is not None}

    @cached_property
    def pool_works(self) -> float | None:
        """The part of the CPU time of intra-op pools that is certainly work; None if not measured.

        The rest is in OpenMP's library, where threads wait for each other, or in the kernel, which wakes them and maps
        memory.
        """
        rows = [row for own in self.trainers for row in own.threads if row.role in ("native", INTRA_OP)]
        waits = NativeUse.joined(row.native for row in rows if row.native.share("pool")).share("pool", "kernel")
        return None if waits is None else 1.0 - waits

    @property
    def in_environment(self) -> set[int]:
        """The values of OMP_NUM_THREADS with which its training processes were started."""
        return {number for own in self.trainers if (number := own.process.omp_num_threads) is not None}

    def lines_that_set(self, what: Setting) -> tuple[Place, ...]:
        """The lines of the program that set one of these numbers, if stacks lead to them."""
        return tuple(self._view.session.trie.setting_lines[what])

    @cached_property
    def demand(self) -> Demand | None:
        """The cores that the run uses and waits for on this machine."""
        return core_demand(self.live_threads, self.cores)

    @property
    def free_cores(self) -> float:
        """Cores that the run could still get: the machine's, less what its threads use and wait for."""
        free = float(self.cores if self.cores is not None else 1)
        for process in self.live_threads:
            free -= (process.cpu_ratio or 0.0) + process.childrens_cores
            free -= sum(row.delay_ratio or 0.0 for row in process.threads)
        return max(0.0, free)

    @cached_property
    def cores_taken(self) -> CoresTaken | None:
        """The cores of the machine that were not available to the run, lately or over its steps; None if unknown."""
        cost = self._view.session.cost
        return self.table.cores_taken(self._view.focus.threads_span, cost.cpu_ratio if cost is not None else 0.0)

    @cached_property
    def waits_from_outside(self) -> OutsideWaits:
        """The part of the run's waits for a core on this machine that has causes outside the run.

        A core that others use for a second keeps the run from it for at most a second. For any further time its threads
        wait for one another: if the run waits for 1 s while other programs use 0.2 s, these cause 0.2 s. Cores that the
        host of a virtual machine gives to others, and cores that a CPU limit withholds, count in the same way.
        """
        demand, taken = self.demand, self.cores_taken
        if demand is None or demand.delay <= 0.0:
            return OutsideWaits()
        if taken is None:  # others cause all of them, unless the run itself wants as many cores as there are
            crowded = sum(demand.busy_threads.values()) > demand.cores
            wants_all = demand.cpu >= NEARLY_ALL * demand.cores or demand.wanted >= WANTED_RATIO * demand.cores
            return OutsideWaits(0.0 if crowded or wants_all else 1.0)
        programs = taken.others if taken.idle is None or taken.idle < _IDLE else 0.0
        sources: dict[Outside, float] = {"limit": taken.held, "host": taken.stolen, "programs": programs}
        total = sum(sources.values())
        most = max(sources, key=lambda name: sources[name])
        return OutsideWaits(min(1.0, total / demand.delay), most, sources[most])

    @cached_property
    def are_workers_known(self) -> bool:
        """True if the CPU use of all workers is known: for some seconds, new ones look like other programs.

        The CPU use of workers that are restarted for every epoch is known from their parents.
        """
        return all(
            self._view.of(worker.pid).thread_figures is not None
            for own in self.trainers
            if not are_renewed(own.workers, own.recent_workers)
            for worker in own.workers
        )

    @cached_property
    def delay_ratio(self) -> float | None:
        """The median share of time that its training threads wait for a core; None if not reported."""
        known = [ratio for own in self.trainers if (ratio := own.training.delay_ratio) is not None]
        return median(known) if known else None

    @property
    def _threads(self) -> Mapping[int, ProcessThreads]:
        return self._view.session.threads

    @property
    def facts(self) -> dict[str, str]:
        """The evidence in findings on the machine: its host, if the run has several."""
        return {"host": self.host} if self.host is not None else {}


@cached_query
def machines(view: SessionView) -> tuple[Machine, ...]:
    """All machines of the run, the one in focus first."""
    session = view.session
    focus, known = session.focus_node, session.nodes.known
    hosts = {number: node.host for number, node in known.items()} if len(known) > 1 else {}
    trainers: dict[int, list[ProcessView]] = {}
    for own in map(view.of, session.trainers()):
        trainers.setdefault(own.node, []).append(own)
    numbers = [focus, *(number for number in sorted(known) if number != focus)]
    return tuple(Machine(number, hosts.get(number), tuple(trainers.get(number, ())), view) for number in numbers)


def used_gpus(view: SessionView, node: int) -> tuple[GpuRow, ...]:
    """The GPUs of a node that the run uses, and that have figures over the steps, or recent ones."""
    known = (row for row in view.gpus_on(node) if row.used_by_run)
    return tuple(row for row in known if not row.is_old or (row.means is not None and row.means.util_ratio is not None))


def worst_of(found: Sequence[Machine], how_bad: Callable[[Machine], float]) -> tuple[Machine, str]:
    """The first machine (the one in focus comes first) that suffers about as much as the worst, and text that names it.

    Nodes do the same work, so the very worst would change each second.
    """
    worst = max(how_bad(machine) for machine in found)
    machine = next(machine for machine in found if how_bad(machine) >= ALIKE * worst)
    others = len(found) - 1
    return machine, f"on {machine.host} and {plural(others, 'other node')}: " if others else machine.place


def core_demand(processes: Sequence[Threads], cores: int | None) -> Demand | None:
    """The cores that live processes of the run want; None if the kernel reports no run-queue delay (schedstat)."""
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
    # A thread that waits for work by yielding in a loop always stands in the run queue, but hardly runs; a thread that
    # wants to run gets about as much of the cores as the others. Measured: two threads of setfit stood in the run queue
    # for 65 % of the time and ran for 2 %, 0.04 of what the others got, next to a model that computes on 2 cores.
    competing = [row for _, row in rows if row.wanted_ratio >= UNUSUAL]
    mean = sum((row.cpu_ratio or 0.0) * row.count for row in competing) / (sum(row.count for row in competing) or 1)
    wanting = [(pid, row) for pid, row in rows if row.wanted_ratio < UNUSUAL or (row.cpu_ratio or 0.0) >= SMALL * mean]
    busy: dict[int, int] = {}
    for pid, row in wanting:
        if row.wanted_ratio >= UNUSUAL:
            busy[pid] = busy.get(pid, 0) + row.count
    return Demand(cores, cpu, sum((row.delay_ratio or 0.0) * row.count for _, row in wanting), busy)
