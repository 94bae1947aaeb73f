"""The nodes of a run: what each is, how far its log is behind, its tables of memory and GPUs, processes that grow."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tuimon.proc.core_list import core_numbers
from tuimon.records import Gpu, MachineMemory, Node, Threads
from tuimon.session.gpus import DeviceTable
from tuimon.session.memory_readings import Growth, MemoryReadings
from tuimon.session.processes.core_use import CoreUse
from tuimon.session.rows import SteppingSpan

#: Most nodes whose records are folded.
NODES = 4096
#: Readings of where a process runs that are held: of five minutes.
_PLACES = 60


class NodeTables:
    """The tables of which a machine has one each."""

    def __init__(self) -> None:
        self.machine = MachineTable()
        self.core_use = CoreUse()
        self.devices = DeviceTable()


class NodeTable:
    """Folds Node records; a run on one machine has none of them, and one set of tables."""

    def __init__(self) -> None:
        self.known: dict[int, Node] = {}
        self.cpu_counts: dict[int, int] = {}  # cores that the run may use, by number of the node
        self.all_cores: dict[int, int] = {}  # that tuimon may
        self._tables: dict[int, NodeTables] = {}

    def add_node(self, record: Node) -> None:
        """Fold what is known of a node."""
        if record.number in self.known or len(self.known) < NODES:
            self.known[record.number] = record
            self.add_cores(record.number, record.cpu_count)

    def add_cores(self, node: int, number: int) -> None:
        """Fold how many cores a node has, by its header."""
        self.cpu_counts[node] = self.all_cores[node] = number

    def note_run_cores(self, node: int, cores: str | None) -> None:
        """Fold which cores the run may use, where these are others than tuimon's."""
        number = len(core_numbers(cores)) if cores is not None else self.all_cores.get(node)
        if number:
            self.cpu_counts[node] = number

    def latest_gpus(self) -> Iterator[Gpu]:
        """The latest record of each GPU of all nodes."""
        for tables in self._tables.values():
            yield from tables.devices.latest()

    def utilisations(self, uuids: Collection[str], spans: Sequence[SteppingSpan]) -> dict[str, float | None]:
        """Mean utilisation of these GPUs over given stretches."""
        found: dict[str, float | None] = {}
        for tables in self._tables.values():
            found |= tables.devices.utilisations(uuids, spans)
        return found

    def tables_of(self, number: int) -> NodeTables:
        """The tables of a node."""
        tables = self._tables.get(number)
        if tables is None:
            tables = NodeTables()
            if len(self._tables) < NODES:
                self._tables[number] = tables
        return tables


class ProcessGrowth(NamedTuple):
    """A process whose memory grows."""

    pid: int
    growth: Growth


class ProcessCopies(NamedTuple):
    """A process that copies pages which it shares with its parent, one after the other."""

    pid: int
    growth: Growth
    shared_bytes: int  # that it may copy yet


class ProcessHeld(NamedTuple):
    """The memory that a process held."""

    pid: int
    held_bytes: int


class Placement(NamedTuple):
    """The NUMA nodes of a training process."""

    allowed: tuple[int, ...]  # whose cores it may use
    ran_on: tuple[int, ...]  # of each reading, oldest first


class MachineTable:
    """Folds MachineMemory records, and the own memory of the run's processes."""

    def __init__(self) -> None:
        self.latest: MachineMemory | None = None
        self.most_held: ProcessHeld | None = None  # of any process at any time
        self._ran_on: defaultdict[int, deque[int]] = defaultdict(lambda: deque(maxlen=_PLACES))
        self._own: defaultdict[int, MemoryReadings] = defaultdict(MemoryReadings)
        self._private: defaultdict[int, MemoryReadings] = defaultdict(MemoryReadings)
        self._has_own = False  # whether the log has what is a process's own

    def add_memory(self, record: MachineMemory) -> None:
        """Fold the machine's memory, and where processes run."""
        self.latest = record
        for placed in record.placed:
            self._ran_on[placed.pid].append(placed.node)

    def add_threads(self, record: Threads, steps: int) -> None:
        """Fold a process's own memory, which is read now and then; of an older log all that is resident.

        ``steps``: how many it has made.
        """
        if record.own_bytes is not None:
            self._has_own = True
        held = record.own_bytes if self._has_own else record.rss_bytes
        if record.private_bytes is not None:
            self._private[record.pid].add(record.t, record.private_bytes)
        if held is not None:
            self._own[record.pid].add(record.t, held, steps)
            if self.most_held is None or held > self.most_held.held_bytes:
                self.most_held = ProcessHeld(record.pid, held)

    def forget(self, pid: int) -> None:
        """Drop a process that has ended."""
        self._own.pop(pid, None)
        self._private.pop(pid, None)
        self._ran_on.pop(pid, None)

    def placement(self, pid: int) -> Placement | None:
        """The NUMA node that a training process runs on; None on a machine of one."""
        placed = next((each for each in self.latest.placed if each.pid == pid), None) if self.latest else None
        return Placement(tuple(placed.nodes), tuple(self._ran_on[pid])) if placed is not None else None

    def growing(self) -> list[ProcessGrowth]:
        """Processes whose later half of readings is all above the earlier half, fastest growth first."""
        found = [(pid, growth) for pid, held in self._own.items() if (growth := held.growth()) is not None]
        return sorted((ProcessGrowth(*each) for each in found), key=lambda each: -each.growth.bytes_per_s)

    def copying(self, since_s: float) -> ProcessCopies | None:
        """A worker whose own pages grow though its memory does not, ever since a moment: it copies its trainer's."""
        for pid, held in self._private.items():
            growth, own = held.growth_going_on(since_s), self._own[pid].latest_bytes
            grown = self._own[pid].growth_going_on(since_s)
            if growth is not None and own is not None and (grown is None or 2 * grown.risen_bytes < growth.risen_bytes):
                return ProcessCopies(pid, growth, max(0, own - growth.held_bytes))
        return None

    def growth_going_on(self, pid: int, since_s: float) -> Growth | None:
        """How a process has grown since a moment, be it slower now; None if it has not, or no longer does."""
        held = self._own.get(pid)
        return held.growth_going_on(since_s) if held is not None else None

    def steady_growth(self, pid: int, since_s: float) -> Growth | None:
        """How a process has grown since a moment, if it has all the time; else None."""
        held = self._own.get(pid)
        return held.steady_growth(since_s) if held is not None else None
