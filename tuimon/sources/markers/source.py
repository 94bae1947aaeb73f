"""Finds the rings of a run's processes, also those that have lost their names, and follows them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from contextlib import suppress

from tuimon.agent.ring import layout
from tuimon.agent.ring.files import TRACED, refused_directories, ring_directories, ring_directory, side_file
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.code_origin import innermost_work
from tuimon.proc import procfs
from tuimon.proc.ring_facts import RawFrame, ring_facts
from tuimon.records import Notice, Record, Uncaught
from tuimon.sources.base import Source
from tuimon.sources.log.output import TRACEBACK, last_traceback_line
from tuimon.sources.markers.follower import RingFollower
from tuimon.sources.process_table import ProcessId, ProcessTable
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.window_lengths import longest_intervals
from tuimon.text import plain, whole_number


def refused_folders(now_s: float) -> list[Notice]:
    """A warning for each folder of rings that somebody else owns, can write to or can replace."""
    instead = ring_directory()
    effect = f"rings are in {instead} instead" if instead else "there are no markers"
    return [
        _warning(
            now_s,
            f"{reason}: {effect}",
            f"Remove {folder}, or have its owner do it; or name a folder of yours in TUIMON_RING_DIR.",
        )
        for folder, reason in refused_directories().items()
    ]


#: The notice about rings whose files were removed while their processes run; their markers are still read.
_DELETED = (
    "the ring of {process} was deleted from {folder}, as by a logout with RemoveIPC=yes or a cleaner of temporary"
    " files: its markers are still read, but DataLoader workers that start from now on are not timed",
    "Keep {folder} from being emptied (RemoveIPC=no in logind.conf), or set TUIMON_RING_DIR to a folder that nobody"
    " empties before the next start.",
)
#: The notice about rings whose markers end before their processes do: a file was cut short, or its folder fails.
_UNREADABLE = (
    "the ring of {process} cannot be read any more: its markers end here",
    "Check the file system of {folder}, and what cuts files short there; or name another folder in TUIMON_RING_DIR"
    " before the next start.",
)
#: The notice about rings whose processes go on without hooks.
_WITHDRAWN = (
    "the hooks of {process} were withdrawn, as by another tuimon that had brought them in: its markers end here",
    "tuimon attach --inject brings them in again.",
)


def _ring_warning(now_s: float, readers: Sequence[RingReader], texts: tuple[str, str]) -> Notice:
    more = f" and {len(readers) - 1} more" if len(readers) > 1 else ""
    names = {"process": f"process {readers[0].pid}{more}", "folder": os.path.dirname(readers[0].path)}
    message, hint = (text.format(**names) for text in texts)
    return _warning(now_s, message, hint)


def _warning(now_s: float, message: str, hint: str) -> Notice:
    return Notice(t=now_s, pid=0, source="markers", level="warning", message=plain(message), hint=plain(hint))


#: A ring holds about 2 s of the fastest loops: those that fill fast are read this often, and all while they are few.
_SOON_S = 0.25
_FEW = 4
#: Markers a second of a ring that need not be read sooner: an eighth of what it holds.
_CALM_HZ = layout.SLOT_COUNT / 8


class MarkerSource(Source):
    """Finds the rings of the run's processes and follows them."""

    name = "markers"

    def __init__(
        self, table: ProcessTable, interval_s: float = 1.0, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._table = table
        self._interval_s = interval_s
        self._clock_ns = clock_ns
        self.followers: dict[str, RingFollower] = {}  # by path: pid and start time
        self._foreign: set[str] = set()  # rings that are not of this run
        self._nameless: set[str] = set()  # followed rings that were deleted
        # by path of a ring that its process has replaced, or closed: the process, its steps until then, and whether its
        # loop goes on without hooks
        self.steps_before: dict[str, tuple[ProcessId, int, bool]] = {}
        self._reads = 0
        self._read_ns = clock_ns()
        self.period_s = _SOON_S

    def read(self) -> Iterable[Record]:
        """The records of the windows that have ended, of all rings."""
        out: list[Record] = []
        if self._reads == 0:
            out.extend(refused_folders(self._clock_ns() / 1e9))
        if not self.followers or self._reads % 2 == 0 or self.period_s > _SOON_S:  # any read may be the run's last
            out.extend(self._deleted(self._find_rings()))
        self._reads += 1
        # before ``now_ns``, so that it is later than anything that a process which has ended wrote
        stats = {path: procfs.read_process_stat(follower.pid) for path, follower in self.followers.items()}
        ended = {path for path, follower in self.followers.items() if not goes_on(follower.reader, stats[path])}
        # which processes are stopped, or were together with tuimon
        before_ns, self._read_ns = self._read_ns, self._clock_ns()
        for path, follower in self.followers.items():
            if self._read_ns - before_ns > 5e9:  # somebody has stopped tuimon
                follower.note_pause(before_ns, self._read_ns)
            follower.note_process(stats[path], before_ns, self._read_ns)
        due = self.due_rings(ended)
        failed = [follower.reader for follower in due.values() if follower.reader.is_cut()]
        withdrawn = [due[path].reader for path in ended & due.keys() if due[path].reader.is_withdrawn()]
        now_ns = self._clock_ns()
        for path, follower in due.items():
            last = path in ended or follower.reader in failed
            try:
                out.extend(self._read_ring(follower, now_ns, last))
            except OSError:
                failed.append(follower.reader)
                last = True
            if last:
                self._drop(path)
        for readers, texts in ((failed, _UNREADABLE), (withdrawn, _WITHDRAWN)):
            if readers:
                out.append(_ring_warning(now_ns / 1e9, readers, texts))
        self.period_s = self._period_s(now_ns)
        return out

    def close(self) -> None:
        for follower in self.followers.values():
            follower.reader.close()
        self.followers.clear()

    def due_rings(self, ended: Collection[str]) -> dict[str, RingFollower]:
        """The rings to read now, by path: their window ends, or their process has ended."""
        now_ns, focus = self._clock_ns(), self._table.focus
        longest = longest_intervals(sum(follower.trains for follower in self.followers.values()), self._interval_s)
        return {
            path: follower
            for path, follower in self.followers.items()
            if follower.is_due(now_ns, 1 if path in ended or follower.pid in focus else longest)
        }

    def _period_s(self, now_ns: int) -> float:
        """Time to the next read: many rings are each read once a window, just after its end."""
        fastest = max((follower.markers_per_s for follower in self.followers.values()), default=0.0)
        if len(self.followers) < _FEW or fastest > _CALM_HZ:
            return _SOON_S
        until_end_s = self._interval_s - now_ns / 1e9 % self._interval_s
        # markers of a fast loop wait up to 50 ms, and for the next one, to be written
        return min(until_end_s + 0.1, 1.0)  # a slow loop may become a fast one

    def _read_ring(self, follower: RingFollower, now_ns: int, last: bool) -> Iterable[Record]:
        yield from follower.windows(now_ns)
        if last:
            yield from follower.last(now_ns)
            yield from _uncaught(follower, now_ns, self._table.programs)
            return
        pid = follower.pid
        follower.phases = self._table.phases.get(pid)
        if follower.trains:
            self._table.note_seen(pid, "marked")
        meta = follower.reader.meta()
        if meta is not follower.known_meta:
            self._table.facts[pid] = ring_facts(meta)
            follower.known_meta = meta

    def _drop(self, path: str) -> None:
        """Forget a ring whose process has ended, and remove its files if tuimon started the run.

        If the process has replaced itself (exec), another ring has the same path, and will be found.
        """
        follower = self.followers.pop(path)
        reader = follower.reader
        process = ProcessId(reader.pid, reader.start_ticks)
        replaced, is_running = reader.is_replaced(), _runs(process)
        if replaced or is_running:
            self.steps_before[path] = (process, follower.steps, reader.is_withdrawn())
        elif self._table.run_id is not None and reader.meta().get("run") == self._table.run_id:
            for left in (path, side_file(path, TRACED)):  # nobody else reads them
                with suppress(OSError):
                    os.unlink(left)
        if not replaced:
            self._foreign.add(path)
        if not is_running:
            self._table.forget(process)
        self._nameless.discard(path)
        reader.close()

    def _deleted(self, present: Set[str]) -> Iterable[Notice]:
        """A notice if rings have lost their names although their processes go on. ``present``: the names found."""
        missing = self.followers.keys() - present - self._nameless
        found = [self.followers[path].reader for path in missing]
        lost = [reader for reader in found if reader.has_vanished() and goes_on(reader)]
        self._nameless.update(reader.path for reader in lost)
        if lost:
            yield _ring_warning(self._clock_ns() / 1e9, lost, _DELETED)

    def _find_rings(self) -> Set[str]:
        """Follow the new rings of the run; returns the paths of all rings."""
        ours = set(self._table.pids())
        refused = refused_directories()
        paths: dict[str, int | None] = {}  # with the pid that its name begins with
        for place in ring_directories():
            with suppress(OSError):
                names = [] if place in refused else os.listdir(place)
                rings = (name for name in names if name.endswith(".ring"))
                paths.update((os.path.join(place, name), whole_number(name.partition("-")[0])) for name in rings)
        self._foreign &= paths.keys()
        self.steps_before = {
            path: before for path, before in self.steps_before.items() if path in paths or _runs(before[0])
        }
        for path, pid in paths.items():
            if path not in self.followers and (pid in ours or path not in self._foreign):
                self._consider(path, pid in ours)
        return paths.keys()

    def _consider(self, path: str, descends: bool) -> None:
        """Follow the ring if it belongs to the run: a descendant of the root, or started by the same ``tuimon run``.

        A process of the run that has already ended left its ring behind: a short script is read after its end.
        """
        try:
            reader = RingReader(path)
        except (OSError, RingError) as error:
            if getattr(error, "errno", None) not in procfs.SHORTAGES:
                self._foreign.add(path)
            return
        meta = reader.meta()
        same_run = self._table.run_id is not None and meta.get("run") == self._table.run_id
        if not (same_run or (descends and goes_on(reader))):
            reader.close()
            if meta:  # otherwise it is still being made: considered again
                self._foreign.add(path)
            return
        if _runs(reader):
            self._table.name_process(reader.pid)
            self._table.facts[reader.pid] = ring_facts(meta)
        _, steps, has_begun = self.steps_before.pop(path, (None, 0, False))
        self.followers[path] = RingFollower(reader, self._interval_s, self._clock_ns(), steps, has_begun=has_begun)


def _uncaught(follower: RingFollower, now_ns: int, programs: Collection[str]) -> Iterable[Uncaught]:
    """The exception that its program ended by, with the innermost line of the user's code, if there is any."""
    facts = ring_facts(follower.reader.meta())
    if facts.error is None:
        return
    frames = facts.raised_in or (RawFrame("", 0, ""),)
    raised = ProcessCode(programs=programs).innermost(frames) or innermost_work(frames)
    error = last_traceback_line(f"{TRACEBACK}\n{facts.error}".encode("utf-8", "replace")) or facts.error[:500]
    t = min(now_ns, facts.raised_ns or now_ns) / 1e9
    yield Uncaught(t=t, pid=follower.pid, error=plain(error), **raised._asdict())


def _runs(process: ProcessId | RingReader) -> bool:
    return procfs.start_ticks(process.pid) == process.start_ticks


def goes_on(reader: RingReader, stat: procfs.Stat | None = None) -> bool:
    """True if the process still writes to this ring; an exec makes a new ring, a deletion only takes its name."""
    runs = stat.start_ticks == reader.start_ticks if stat is not None else _runs(reader)
    return runs and not reader.is_closed() and not reader.is_replaced()
