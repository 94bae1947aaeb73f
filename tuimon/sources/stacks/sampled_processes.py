"""Which processes are sampled: the training processes, the first rank first, and their DataLoader workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuimon.proc.pythons import is_python
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.schedule import ProcessKey

#: How long they stay as they were found unless the table has changed: a rank may be reported later than its process.
_FOUND_FOR_S = 1.0


class SampledProcesses:
    """The processes to sample as of the process table, found again where that has changed."""

    def __init__(self, table: ProcessTable) -> None:
        self.trainers: Sequence[int] = ()  # to be sampled all the time
        self.workers: Sequence[int] = ()  # in rotation
        self.keys: Mapping[int, ProcessKey] = {}  # of both
        self._table = table
        self._first: int | None = None
        self._version: object = None
        self._until_s = 0.0

    def put_first(self, pid: int | None) -> bool:
        """Let this process come first, or the first rank; whether that is new. On any thread."""
        is_new = pid != self._first
        if is_new:
            self._first, self._until_s = pid, 0.0
        return is_new

    def are_due(self, now_s: float) -> bool:
        """True if they may have changed."""
        return self._version is not self._table.version or now_s >= self._until_s

    def find(self, now_s: float) -> None:
        """Find them."""
        self._version = self._table.version  # before what it is of
        roles, training = self._table.roles, self._table.trainers()
        trainers = training | {pid for pid, role in roles.items() if role == "trainer"}
        self.workers = [pid for pid, role in roles.items() if role == "worker" and pid not in trainers]
        self._until_s = now_s + _FOUND_FOR_S if training else 0.0  # before that any may become a Python process
        if not trainers and not self.workers:
            trainers = frozenset(pid for pid in roles or self._table.pids() if is_python(pid))
        self.trainers = sorted(trainers, key=self._rank)
        self.keys = {pid: (pid, self._table.start_ticks(pid)) for pid in (*self.trainers, *self.workers)}

    def key(self, pid: int) -> ProcessKey:
        """A process for good."""
        return self.keys.get(pid) or (pid, self._table.start_ticks(pid))

    def _rank(self, pid: int) -> tuple[bool, int, int]:
        facts = self._table.facts.get(pid)
        return sampling_order(pid, None if facts is None else facts.rank, self._first)


def sampling_order(pid: int, rank: int | None, first: int | None) -> tuple[bool, int, int]:
    """The sort key of training processes: the one to sample first, then by rank, then those without one."""
    return pid != first, 1 << 30 if rank is None else rank, pid
