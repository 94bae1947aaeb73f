"""Takes all stacks of a run once, when the monitor suspects a hang, and watches whether anything moves: files, the
connection or the pipe that a process waits for, a child that works.

Then what torch's flight recorder has of the ranks' collectives is read, as it comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tuimon.code_origin import is_agent_file, is_user_file
from tuimon.proc import connections, procfs
from tuimon.proc.processes import start_unix_s
from tuimon.proc.target_files import TargetFiles
from tuimon.records import Collectives, Frame, Record, StackGroup, StandingProcess, Standstill
from tuimon.sources.base import Source, Suspect, Suspicion
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.source_facts import SourceBlocks
from tuimon.sources.source_text import SourceText
from tuimon.sources.stacks.frames.frame_ids import RawFrame, bare_name
from tuimon.sources.stacks.pyspy import recorder
from tuimon.sources.standstill.stacks import ProcessStacks, ThreadStack, take_stacks
from tuimon.sources.standstill.waiting import Waiting, bytes_per_s, idle_peers, moving, read_waiting

if TYPE_CHECKING:
    from tuimon.sources.standstill.flight_recorders import Recorders

#: Limits of a record: groups, threads of one, and innermost frames of a stack; with lines of 100 bytes 150 kB.
GROUPS = 48
THREADS = 256
DEPTH = 32
#: Longest name of a function and of a file.
_NAME_CHARS = 300


class Grouped(Struct, frozen=True, gc=False):
    """The groups, those with main and training threads first and of these the largest, and what is in none of them."""

    groups: list[StackGroup]
    folded: int  # threads of groups that have no room
    idle: int  # threads without code of the user's


def grouped(
    threads: Iterable[tuple[int, ThreadStack]], source: Callable[[int, RawFrame], str], training: Collection[int] = ()
) -> Grouped:
    """Group threads, given with their pids; ``source`` reads a line for a process.

    Main threads are always listed, and those that train elsewhere: their ids are ``training``.
    """
    members: dict[tuple[RawFrame, ...], list[tuple[int, int]]] = {}
    idle = 0
    for pid, thread in threads:
        frames = tuple(frame for frame in thread.frames if not is_agent_file(frame.file))
        if thread.tid not in (pid, *training) and not any(is_user_file(frame.file) for frame in frames):
            idle += 1
            continue
        members.setdefault(frames, []).append((pid, thread.tid))
    ordered = sorted(members.items(), key=lambda item: (not _is_first(item[1], training), -len(item[1])))
    groups = [_group(frames, found, source) for frames, found in ordered[:GROUPS]]
    return Grouped(groups, sum(len(found) for _, found in ordered[GROUPS:]), idle)


def _is_first(found: Iterable[tuple[int, int]], training: Collection[int]) -> bool:
    return any(pid == tid or tid in training for pid, tid in found)


def _group(
    frames: tuple[RawFrame, ...], found: list[tuple[int, int]], source: Callable[[int, RawFrame], str]
) -> StackGroup:
    inner = frames[-DEPTH:]
    shown = [_frame(frame, source(found[0][0], frame) if is_user_file(frame.file) else "") for frame in inner]
    return StackGroup(shown, len(frames) - len(inner), found[:THREADS], max(0, len(found) - THREADS))


def _frame(frame: RawFrame, text: str) -> Frame:
    file, line, function = frame
    return Frame(file[-4 * _NAME_CHARS :], line, function[:_NAME_CHARS], text, is_user_file(file))


#: Reading and writing are measured over so long before the stacks are taken, and again so often after that (s).
_BEFORE_S = 2.0
_AGAIN_S = 5.0
_STATES = {"R": "running", "D": "disk", "T": "stopped", "t": "stopped", "Z": "ended", "X": "ended"}


class _Watch:
    """One standstill."""

    def __init__(self, suspicion: Suspicion, waiting: Waiting, now_s: float) -> None:
        self.suspicion = suspicion
        self.waiting = waiting
        self.due_s = now_s + _BEFORE_S
        self.is_taken = False
        self.recorders: Recorders | None = None  # once the stacks are taken


def _flight_recorders(processes: Iterable[Suspect], quiet_s: float) -> Recorders:
    from tuimon.sources.standstill.flight_recorders import Recorders  # noqa: PLC0415  (only a hang needs pickle)

    return Recorders(processes, quiet_s)


class StandstillSource(Source):
    """Idle until ``inspect`` names a suspicion. ``taken`` by py-spy, or what agents sample where that is denied."""

    name = "standstill"

    def __init__(
        self,
        table: ProcessTable,
        clock: Callable[[], float] = time.monotonic,
        binary: Callable[[], str | None] = recorder.find,
        take: Callable[[str | None, Iterable[int], float], Mapping[int, ProcessStacks]] = take_stacks,
        recorders: Callable[[Iterable[Suspect], float], Recorders] = _flight_recorders,
    ) -> None:
        self.period_s = 0.5
        self._table = table
        self._clock = clock
        self._binary = binary
        self._take = take
        self._recorders = recorders
        self._suspicion: Suspicion | None = None
        self._watch: _Watch | None = None

    def inspect(self, suspicion: Callable[[], Suspicion | None]) -> None:
        """Inspect a standstill, once; where it gives None the training goes on. May be called on any thread."""
        self._suspicion = suspicion()

    def read(self) -> Iterable[Record]:
        """The stacks, once a standstill, unless files are read or written meanwhile; and whenever they are."""
        suspicion, watch, now_s = self._suspicion, self._watch, self._clock()
        if suspicion is None:  # for a moment, or for good: what is known of this standstill is kept
            return
        if watch is None or suspicion.since_s > watch.suspicion.since_s + 1.0:
            waiting = read_waiting(suspicion.processes, self._table.pids(), now_s)
            self._watch = _Watch(suspicion, waiting, now_s)
        elif now_s >= watch.due_s:
            yield from self._inspected(watch, now_s)
        elif watch.recorders is not None and (ranks := watch.recorders.read_new()):
            yield Collectives(t=round(now_s, 3), pid=0, ranks=ranks)

    def _inspected(self, watch: _Watch, now_s: float) -> Iterable[Record]:
        before, after = watch.waiting, read_waiting(watch.suspicion.processes, self._table.pids(), now_s)
        watch.waiting, watch.due_s = after, now_s + _AGAIN_S
        quiet_s = round(now_s - watch.suspicion.since_s, 3)
        if moved := moving(before, after):
            yield Standstill(t=round(now_s, 3), pid=0, quiet_s=quiet_s, moving=moved)
        elif not watch.is_taken:
            watch.is_taken = True
            watch.recorders = self._recorders(watch.suspicion.processes, quiet_s)
            watch.recorders.request()  # they are written while the stacks are taken
            yield self._taken(watch.suspicion, before, after)

    def _taken(self, suspicion: Suspicion, before: Waiting, after: Waiting) -> Standstill:
        live = [each for each in suspicion.processes if self._table.start_ticks(each.pid) is not None]
        states = {each.pid: _state(each.pid) for each in live}
        stacks = self._take(self._binary(), [each.pid for each in live], suspicion.since_s)
        threads = ((pid, thread) for pid, found in stacks.items() for thread in found.threads)
        codes = _Codes(self._table)
        groups = grouped(threads, codes.of, {each.tid for each in live if each.tid is not None})
        now_s = self._clock()
        return Standstill(
            t=round(now_s, 3),
            pid=0,
            quiet_s=round(now_s - suspicion.since_s, 3),
            processes=[
                StandingProcess(
                    each.pid,
                    each.role,
                    each.rank,
                    states[each.pid],
                    bytes_per_s(before.suspects.get(each.pid), after.suspects.get(each.pid)),
                    _unknown(each, stacks[each.pid]),
                    each.tid,
                    codes.has_left(each, stacks[each.pid]),
                    idle_peers(each.pid, before, after, self._table.pids()),
                    connections.listens(each.pid),
                )
                for each in live
            ],
            groups=groups.groups,
            folded=groups.folded,
            idle=groups.idle,
        )


class _Codes:
    """Lines of source of several processes, and the blocks around them, at one moment."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._source = SourceText()
        self._of_process: dict[int, tuple[TargetFiles, SourceBlocks]] = {}

    def of(self, pid: int, frame: RawFrame) -> str:
        """The source at a frame's line, as its process can read it."""
        return self._source.line(frame.file, frame.line, self._files(pid)[0])

    def has_left(self, suspect: Suspect, found: ProcessStacks) -> bool:
        """True if its training thread is outside every loop that it trained in; False where that is not known."""
        frames = next((each.frames for each in found.threads if each.tid == (suspect.tid or suspect.pid)), ())
        trained = [[RawFrame(f.file, f.line, f.function) for f in loop] for loop in suspect.loops]
        _, blocks = self._files(suspect.pid)
        return bool(trained) and all(has_left(frames, loop, blocks) for loop in trained)

    def _files(self, pid: int) -> tuple[TargetFiles, SourceBlocks]:
        if pid not in self._of_process:
            ticks = self._table.start_ticks(pid)
            files = TargetFiles(pid, None if ticks is None else start_unix_s(ticks))
            self._of_process[pid] = files, SourceBlocks(files)
        return self._of_process[pid]


def _unknown(each: Suspect, found: ProcessStacks) -> str | None:
    """Why the stack of the thread that matters is not known."""
    has_left = each.tid is not None and all(thread.tid != each.tid for thread in found.threads)
    return "its training thread has ended" if has_left and found.unknown is None else found.unknown


def _state(pid: int) -> str:
    stat = procfs.read_thread_stat(pid, pid)
    return _STATES.get(stat.state, "waiting") if stat is not None else "ended"


def has_left(now: Sequence[RawFrame], trained: Sequence[RawFrame], blocks: SourceBlocks) -> bool:
    """True if no loop holds both where a thread is (``now``) and where it trained; frames root first.

    If ``main()`` calls ``fit()`` in a ``for`` and ``serve()`` below it, ``serve()`` has left the loop; what follows
    ``fit()`` inside the ``for`` has not. False where the source is not known, or one line calls both: that loop may
    be in C.
    """
    here, there = _own(now), _own(trained)
    if not here or not there:
        return False
    for depth, (one, other) in enumerate(zip(here, there, strict=False)):
        if _function(one) != _function(other):
            return depth == 0  # below, one line calls both
        if blocks.in_one_loop(one.file, one.line, other.line) is not False:
            return False
        if one.line != other.line:
            return True
    return False


def _own(frames: Sequence[RawFrame]) -> list[RawFrame]:
    return [frame for frame in frames if not is_agent_file(frame.file)]


def _function(frame: RawFrame) -> tuple[str, str]:
    return frame.file, bare_name(frame.function)
