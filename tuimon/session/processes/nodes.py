"""The nodes of a run: what each is, how far its log is behind, and the tables of its memory and GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tuimon.records import Gpu, Node
from tuimon.session.counter_means import SteppingSpan
from tuimon.session.gpu.devices import DeviceTable
from tuimon.session.processes.core_use import CoreUse
from tuimon.session.processes.machine import MachineTable
from tuimon.session.processes.recent_waits import RecentWaits

#: Most nodes whose records are folded.
NODES = 4096


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
        self.cpu_counts: dict[int, int] = {}  # cores by number of the node
        self._tables: dict[int, NodeTables] = {}

    def add_node(self, record: Node) -> None:
        """Fold what is known of a node."""
        if record.number in self.known or len(self.known) < NODES:
            self.known[record.number] = record
            self.cpu_counts[record.number] = record.cpu_count

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
