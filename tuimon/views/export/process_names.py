"""The names of processes in exports: on several nodes an id alone is ambiguous."""

from __future__ import annotations

from tuimon.node_ids import node_of, own_id
from tuimon.records import Header, Node, Process, Record

#: Ids of processes are below this on Linux (PID_MAX_LIMIT); Perfetto reads 32 bits.
_PIDS = 1 << 22


class ProcessNames:
    """Folds Header, Node and Process records: hosts, ranks, and ids that no other node has."""

    def __init__(self) -> None:
        self._hosts: dict[int, str] = {}  # by number of the node
        self._ranks: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._taken: set[int] = set()

    def add_record(self, record: Record) -> None:
        """Note the facts in a record of a node or process; ignore others."""
        match record:
            case Header():
                self._hosts.setdefault(0, record.host)
            case Node():
                self._hosts[record.number] = record.host
            case Process() if record.rank is not None and not record.serves:
                self._ranks[record.pid] = record.rank

    def rank(self, pid: int) -> int | None:
        """The rank of a process; None where it has none."""
        return self._ranks.get(pid)

    def title(self, pid: int) -> str:
        """``rank 3 on node2``, ``rank 3``, ``on node2``; empty for a process without a rank, on the only node."""
        rank, host = self._ranks.get(pid), self._hosts.get(node_of(pid))
        on_host = f"on {host}" if len(self._hosts) > 1 and host else ""
        return " ".join(filter(None, ("" if rank is None else f"rank {rank}", on_host)))

    def number(self, pid: int) -> int:
        """An id within 32 bits that no other process has: its own, where no other node's process came with it."""
        number = self._numbers.get(pid)
        if number is None:
            number = own_id(pid)
            if number in self._taken:
                number = _PIDS + len(self._numbers)
            self._taken.add(number)
            self._numbers[pid] = number
        return number
