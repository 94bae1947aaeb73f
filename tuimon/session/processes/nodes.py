"""The nodes of a run: what each is, how far its log is behind, its tables of memory and GPUs, processes that grow."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from tuimon.proc.core_list import core_numbers
from tuimon.records import Gpu, MachineMemory, Node, Threads
from tuimon.session.counter_means import SteppingSpan
from tuimon.session.gpu_devices import DeviceTable
from tuimon.session.processes.core_use import CoreUse
from tuimon.session.processes.core_waits import RecentWaits

#: Most nodes whose records are folded.
NODES = 4096
#: What a growth rate covers, in seconds, from one reading in so many seconds, and at least so many readings.
SPAN_S = 120.0
_EVERY_S = 4.0
_LEAST_READINGS, _MOST_READINGS = 4, int(SPAN_S / _EVERY_S) + 1


class NodeTables:
    """What a machine has one of."""

    def __init__(self) -> None:
        self.machine = MachineTable()
        self.core_use = CoreUse()
        self.recent_waits = RecentWaits()
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


def _new_readings() -> array[float]:
    return array("d")  # pairs, of a time and bytes


class Growth(Struct, frozen=True, gc=False):
    """A process whose resident memory grows."""

    pid: int
    rss_bytes: int
    bytes_per_s: float


class MachineTable:
    """Folds MachineMemory records, and the resident memory of the run's processes."""

    def __init__(self) -> None:
        self.latest: MachineMemory | None = None
        self._rss: defaultdict[int, array[float]] = defaultdict(_new_readings)

    def add_memory(self, record: MachineMemory) -> None:
        """Fold the machine's memory."""
        self.latest = record

    def add_threads(self, record: Threads) -> None:
        """Fold a process's resident memory; one reading in 4 s is kept."""
        if record.rss_bytes is None:
            return
        readings = self._rss[record.pid]
        if not readings or record.t - readings[-2] >= _EVERY_S:
            readings.extend((record.t, record.rss_bytes))
        while readings[0] < record.t - SPAN_S or len(readings) > 2 * _MOST_READINGS:
            del readings[:2]

    def forget(self, pid: int) -> None:
        """Drop a process that has ended."""
        self._rss.pop(pid, None)

    def growing(self) -> list[Growth]:
        """Processes whose later half of readings is all above the earlier half, fastest growth first."""
        pairs = ((pid, list(zip(values[::2], values[1::2], strict=True))) for pid, values in self._rss.items())
        found = (self._growth(pid, readings) for pid, readings in pairs)
        return sorted((growth for growth in found if growth is not None), key=lambda growth: -growth.bytes_per_s)

    def _growth(self, pid: int, readings: list[tuple[float, float]]) -> Growth | None:
        if len(readings) < _LEAST_READINGS:
            return None
        half = len(readings) // 2
        early, late = readings[:half], readings[half:]
        if max(rss for _, rss in early) >= min(rss for _, rss in late):
            return None  # up and down: a cache, or a loader at work
        (from_s, from_bytes), (to_s, to_bytes) = readings[0], readings[-1]
        return Growth(pid, int(to_bytes), (to_bytes - from_bytes) / (to_s - from_s))
