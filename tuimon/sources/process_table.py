"""The process table of a run: facts that its sources share about processes, and the monitor's requests to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

from tuimon.proc import procfs
from tuimon.proc.ring_facts import RingFacts
from tuimon.records import ProcessRole, ThreadCpu
from tuimon.sources.base import Suspicion


class ProcessId(NamedTuple):
    """The identity of a process: a pid is used again later, but not with the same start time."""

    pid: int
    start_ticks: int  # since boot


#: A phase of a loop, or the time between two that have no markers: begin and end (ns, monotonic), and its name.
TimedPhase = tuple[int, int, str]
#: The observed activity of a process: backwards or updates in its ring; backward, or torch's worker loop, in samples of
#: its main thread.
Seen = Literal["marked", "training", "loading"]


class ProcessTable:
    """The live processes of a run, a column for each fact.

    A column has one writer, named next to it, and is replaced or extended in one assignment: the sources' threads need
    no lock.
    """

    def __init__(self, root_pid: int, run_id: str | None) -> None:
        """``run_id`` is None when tuimon attached to ``root_pid`` instead of starting it."""
        self.root_pid = root_pid
        self.run_id = run_id
        #: start of the root; None when it had ended before this table was made
        self.root_start_ticks = procfs.start_ticks(root_pid)
        #: start of each live process, the root first; written by the process source
        self._start_ticks: Mapping[int, int] = {}
        #: the role of each live process; written by the process source
        self.roles: Mapping[int, ProcessRole] = {}
        #: the facts that each process with a ring reports of itself; written by the markers source
        self.facts: dict[int, RingFacts] = {}
        #: processes whose ring showed that they belong to the run; written by the markers source
        self.named: tuple[ProcessId, ...] = ()
        #: processes that were seen to do this; what is marked is written by the markers source, the rest by the stacks
        self._seen: dict[Seen, frozenset[ProcessId]] = dict.fromkeys(get_args(Seen), frozenset())
        #: the threads of each process that ran in its latest window, and how much; written by the process source
        self.running: dict[int, list[ThreadCpu]] = {}
        #: the latest phases of a process, if somebody has put a deque for them; filled by the markers source
        self.phases: dict[int, deque[TimedPhase]] = {}
        #: installed packages that are the program, whose code counts as the user's; written by the stacks source
        self.programs: frozenset[str] = frozenset()
        #: CPU seconds of all py-spy children that have ended; written by the stacks source
        self.sampler_cpu_s = 0.0
        #: another object whenever the live processes, their roles or who trains have changed
        self.version = object()
        #: the processes that are always read at the full rate; written by the monitor, as are the next
        self.focus: frozenset[int] = frozenset()
        #: the process that is sampled all the time, others in rotation; None: the first rank
        self.sampled_first: int | None = None
        #: how much of a core samples may take; None: as much as at the start
        self.sampling_ratio: float | None = None
        #: whether to record the allocator's history of the next steps; reset by the source that does so
        self.wants_memory = False
        #: the ranks of a training in which some wait for others: the collectives of one of them are counted
        self.wants_collectives: frozenset[int] = frozenset()
        #: the updates in a step of each process whose calls that read or move tensors are to be counted
        self.wants_calls: dict[int, int] = {}
        #: the standstill whose stacks are to be taken, once; None while the training goes on
        self.suspicion: Suspicion | None = None
        if self.root_start_ticks is not None:
            self._start_ticks = {root_pid: self.root_start_ticks}

    def pids(self) -> tuple[int, ...]:
        """The processes of the run that were alive when they were last read, the root first."""
        return tuple(self._start_ticks)

    def start_ticks(self, pid: int) -> int | None:
        """Start time of one of the run's processes; with the pid, its identity. None when it is not of the run."""
        return self._start_ticks.get(pid)

    def trainers(self) -> frozenset[int]:
        """The live processes whose ring showed backwards or updates."""
        return self.seen("marked")

    def seen(self, doing: Seen) -> frozenset[int]:
        """The live processes that were seen doing this."""
        return frozenset(pid for pid, start in self._seen[doing] if self._start_ticks.get(pid) == start)

    def by_rank(self, pids: Iterable[int]) -> list[int]:
        """These processes by the ranks that they report; those without one come last."""
        ranks = {pid: facts.rank for pid, facts in self.facts.items() if facts.rank is not None}
        return sorted(pids, key=lambda pid: (pid not in ranks, ranks.get(pid), pid))

    def note_seen(self, pid: int, doing: Seen) -> None:
        """Note that a process of the run was seen doing this; for the markers and the stacks source."""
        start, before = self._start_ticks.get(pid), self._seen[doing]
        if start is not None and (pid, start) not in before:
            alive = self.seen(doing)
            self._seen[doing] = frozenset((*(each for each in before if each.pid in alive), ProcessId(pid, start)))
            self.version = object()

    def forget(self, process: ProcessId) -> None:
        """Drop what a process that has ended has reported: its pid may be used again; for the markers source."""
        self.facts = {pid: facts for pid, facts in self.facts.items() if pid != process.pid}
        self.named = tuple(known for known in self.named if known != process)
        self._seen["marked"] -= {process}
        self.version = object()

    def name_process(self, pid: int) -> None:
        """Note a process of the run that may no longer descend from the root; for the markers source."""
        start = procfs.start_ticks(pid)
        if start is not None and (pid, start) not in self.named:
            self.named += (ProcessId(pid, start),)

    def publish(self, start_ticks: Mapping[int, int], roles: Mapping[int, ProcessRole]) -> None:
        """Replace the live processes and their roles; for the process source."""
        if start_ticks != self._start_ticks or roles != self.roles:
            self._start_ticks = dict(start_ticks)
            self.roles = dict(roles)
            self.version = object()
