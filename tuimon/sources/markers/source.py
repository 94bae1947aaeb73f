"""Markers: finds the rings of a run's processes and follows them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from tuimon.agent.ring.paths import refused_directories, ring_directories, ring_directory
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.proc import procfs
from tuimon.proc.ring_facts import ring_facts
from tuimon.records import Notice, Record
from tuimon.sources.markers.follower import RingFollower
from tuimon.sources.process_table import ProcessTable
from tuimon.text import plain


class MarkerSource:
    """Finds the rings of the run's processes and follows them."""

    name = "markers"
    #: A ring holds about 2 s of the fastest loops.
    period_s = 0.25

    def __init__(
        self, table: ProcessTable, interval_s: float = 1.0, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._table = table
        self._interval_s = interval_s
        self._clock_ns = clock_ns
        self._followers: dict[str, RingFollower] = {}  # by path: pid and start time
        self._foreign: set[str] = set()  # rings that are not of this run
        self._reads = 0

    def read(self) -> Iterable[Record]:
        """The records of the windows that have ended, of all rings."""
        out: list[Record] = []
        if self._reads == 0:
            out.extend(refused_folders(self._clock_ns() / 1e9))
        if self._reads % 2 == 0:
            self._find_rings()
        self._reads += 1
        # in this order: what a process wrote before it ended is all from before ``now_ns``
        ended = [path for path, follower in self._followers.items() if not _goes_on(follower.reader)]
        now_ns = self._clock_ns()
        for path, follower in list(self._followers.items()):
            out.extend(follower.windows(now_ns))
            if path in ended:
                out.extend(follower.last(now_ns))
            if follower.trains:
                self._table.mark_trainer(follower.pid)
            meta = follower.reader.meta()
            if meta:
                self._table.facts[follower.pid] = ring_facts(meta)
            if path in ended:
                self._drop(path)
        return out

    def close(self) -> None:
        """Unmap all rings."""
        for follower in self._followers.values():
            follower.reader.close()
        self._followers.clear()

    def _drop(self, path: str) -> None:
        """Its process has ended: what it left of the run that we started is ours to remove.

        Or it has replaced itself (exec): then another ring has the same path, and is to be found.
        """
        reader = self._followers.pop(path).reader
        if reader.is_current():
            self._foreign.add(path)
            if self._table.run_id is not None and reader.meta().get("run") == self._table.run_id:
                with suppress(OSError):
                    os.unlink(path)
        reader.close()

    def _find_rings(self) -> None:
        ours = set(self._table.pids())
        refused = refused_directories()
        places = [place for place in ring_directories() if place not in refused]
        paths = {os.path.join(place, name): _pid_of(name) for place in places for name in _rings(place)}
        self._foreign &= paths.keys()
        for path, pid in paths.items():
            if path not in self._followers and (pid in ours or path not in self._foreign):
                self._consider(path, pid in ours)

    def _consider(self, path: str, descends: bool) -> None:
        """Follow the ring if it belongs to the run: a descendant of the root, or started by the same ``tuimon run``.

        A process of the run that has already ended left its ring behind: a short script is read after its end.
        """
        try:
            reader = RingReader(path)
        except (OSError, RingError):
            self._foreign.add(path)
            return
        meta = reader.meta()
        same_run = self._table.run_id is not None and meta.get("run") == self._table.run_id
        if not (same_run or (descends and _goes_on(reader))):
            reader.close()
            if meta:  # otherwise it is still being made: considered again
                self._foreign.add(path)
            return
        self._table.name_process(reader.pid)
        self._table.facts[reader.pid] = ring_facts(meta)
        self._followers[path] = RingFollower(reader, self._interval_s, self._clock_ns())


def refused_folders(now_s: float) -> list[Notice]:
    """A warning for each folder of rings that somebody else owns, can write to or can replace."""
    instead = ring_directory()
    effect = f"rings are in {instead} instead" if instead else "there are no markers"
    return [
        Notice(
            t=now_s,
            pid=0,
            source="markers",
            level="warning",
            message=plain(f"{reason}: {effect}"),
            hint=plain(f"Remove {folder}, or have its owner do it; or name a folder of yours in TUIMON_RING_DIR."),
        )
        for folder, reason in refused_directories().items()
    ]


def _rings(directory: str) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if name.endswith(".ring")]
    except OSError:
        return []


def _pid_of(ring_name: str) -> int:
    pid = ring_name.partition("-")[0]
    return int(pid) if pid.isdigit() else -1


def _goes_on(reader: RingReader) -> bool:
    """Whether the process that wrote this ring still runs, and writes to this ring (an exec makes a new one)."""
    return procfs.start_ticks(reader.pid) == reader.start_ticks and reader.is_current()
