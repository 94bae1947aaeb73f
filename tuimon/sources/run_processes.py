"""The processes of the run: what the sources that look from outside and the markers source tell each other.

Every field has one writer (named beside it) and is replaced whole, so the sources' threads need no lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tuimon.proc import procfs
from tuimon.records import ProcessRole


class Targets:
    """The live processes of a run. A process is its pid and its start time: pids come back, start times do not."""

    def __init__(self, root_pid: int, run_id: str | None) -> None:
        """``run_id`` is None when tuimon attached to ``root_pid`` instead of starting it."""
        self.root = root_pid
        self.run_id = run_id
        #: what each live process is; written by the process source
        self.roles: dict[int, ProcessRole] = {}
        #: what the ring of a process says of it (``RingReader.meta()``); written by the markers source
        self.facts: dict[int, dict[str, object]] = {}
        #: CPU seconds of all py-spy children that have ended; written by the stacks source
        self.sampler_cpu_s = 0.0
        self._alive: dict[int, int] = {}  # pid -> start, ticks since boot; process source
        self._marked: frozenset[tuple[int, int]] = frozenset()  # markers source
        self._added: tuple[tuple[int, int], ...] = ()  # markers source
        #: start of the root, ticks since boot; None when it had ended before we looked
        self.root_start = procfs.start_ticks(root_pid)
        if self.root_start is not None:
            self._alive = {root_pid: self.root_start}

    def pids(self) -> tuple[int, ...]:
        """The processes of the run that were alive at the last look, the root first."""
        return tuple(self._alive)

    def start_ticks(self, pid: int) -> int | None:
        """Start time of one of the run's processes; with the pid, its identity. None when it is not of the run."""
        return self._alive.get(pid)

    def lives(self, pid: int, start: int | None) -> bool:
        """Whether that very process, not a later one of the same pid, is there now and no zombie."""
        stat = procfs.read_stat(pid)
        return stat is not None and stat.state not in "ZX" and start in (None, stat.start_ticks)

    def trainers(self) -> frozenset[int]:
        """The processes whose ring showed backwards or updates, as far as they live."""
        return frozenset(pid for pid, start in self._marked if self._alive.get(pid) == start)

    def mark_trainer(self, pid: int) -> None:
        """The ring of this process shows that it trains."""
        start = procfs.start_ticks(pid)
        if start is not None:
            self._marked |= {(pid, start)}

    def add(self, pid: int) -> None:
        """A process of the run that is no descendant of the root any more; its ring named it."""
        start = procfs.start_ticks(pid)
        if start is not None and (pid, start) not in self._added:
            self._added += ((pid, start),)

    def added(self) -> Iterable[tuple[int, int]]:
        """What ``add`` was told: pid and start time."""
        return self._added

    def replace(self, alive: Mapping[int, int], roles: Mapping[int, ProcessRole]) -> None:
        """What the process source found at its latest look."""
        self._alive = dict(alive)
        self.roles = dict(roles)
