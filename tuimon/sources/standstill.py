"""Takes all stacks of a run once, when the monitor suspects a hang, and watches whether anything moves: files, the
connection or the pipe that a process waits for, a child that works.

It then reads, as they come, what torch's flight recorders hold of the ranks' collectives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, structs

from tuimon.code_origin import is_agent_file
from tuimon.proc import connections, procfs
from tuimon.proc.processes import start_unix_s
from tuimon.proc.ring_facts import RawFrame
from tuimon.proc.target_files import TargetFiles
from tuimon.records import Collectives, Frame, Record, StackGroup, StandingProcess, Standstill
from tuimon.sources.base import Source, Suspicion
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.followed import THREAD_STATES
from tuimon.sources.source_facts import ProcessCode, SourceFacts
from tuimon.sources.stacks import failures, pyspy
from tuimon.sources.stacks.in_process import latest_samples
from tuimon.sources.stacks.speedscope import SampledThread
from tuimon.threshold import LARGE

if TYPE_CHECKING:
    from tuimon.sources.flight_recorders import Recorders

# -- the stacks of many processes: by py-spy, or from the samples of their agents

#: Number of dumps at a time, and the longest that one may take (s). A dump takes 0.05 to 0.1 s of a core.
_AT_ONCE = 8
_DUMP_S = 4.0
#: Stacks that are not there after this time (s) are reported as unknown: 500 processes take 6 s on 8 cores.
ALL_S = 8.0
#: Threads of one process that are read.
_THREADS = 200


#: The threads of a process, each with its stack, or why they are not known.
StackResult: TypeAlias = "Sequence[SampledThread] | str"


def take_stacks(pids: Iterable[int], since_s: float) -> Mapping[int, StackResult]:
    """The stacks of these processes, the first ones first; ``since_s``: what agents sampled before does not count."""
    from concurrent.futures import ThreadPoolExecutor, wait  # noqa: PLC0415  (0.4 MB, seldom needed)

    binary, pool = pyspy.find(), ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1), "tuimon-dump")
    futures = {pid: pool.submit(_stacks_of, binary, pid, since_s) for pid in pids}
    done, _ = wait(futures.values(), ALL_S)
    pool.shutdown(wait=False, cancel_futures=True)
    late = "there was no time: too many processes, or a busy machine"
    return {pid: future.result() if future in done else late for pid, future in futures.items()}


def _stacks_of(binary: str | None, pid: int, since_s: float) -> StackResult:
    if binary is None:
        unknown = failures.no_binary().message
    else:
        try:
            return pyspy.dump(binary, pid, _DUMP_S)[:_THREADS]
        except pyspy.DumpError as error:
            unknown = failures.explain(str(error), pid).message
    samples = latest_samples(pid, since_s)
    return samples.threads if samples is not None else unknown.removeprefix("no stack samples: ")


# -- what a process waits for outside: the other end of a pipe or a connection, and children

#: Bytes a second from which a process moves: our choice, above what logs, heartbeats and our own sampling thread write
#: (10 kB/s), and below any storage that still answers.
MOVING_BYTES_PER_S = 32 * 1024


class BlockedThread(Struct, frozen=True, gc=False):
    """A thread blocked in a transfer: its pipe or connection, and how often it had gone to sleep."""

    link: str
    wake_ups: int | None


class Usage(Struct, frozen=True, gc=False):
    """CPU time, reads and writes of a process up to a moment; None if these may not be read."""

    t: float
    cpu_s: float
    io: procfs.ProcessIo | None


class StandstillReading(Struct, frozen=True, gc=False):
    """One reading during a standstill: what the suspects are blocked on, and the usage of them and their children."""

    blocked: Mapping[int, BlockedThread]
    suspects: Mapping[int, Usage]
    children: Mapping[int, Usage]


def take_reading(suspects: Iterable[StandingProcess], run_pids: Iterable[int], now_s: float) -> StandstillReading:
    """Take one reading; ``run_pids``: all processes of the run."""
    tids, blocked = {each.pid: each.tid or each.pid for each in suspects}, {}
    for pid, tid in tids.items():
        link = connections.blocked_on(pid, tid)
        if link is not None:
            blocked[pid] = BlockedThread(link, connections.wake_ups(pid, tid))
    stats = {pid: stat for pid in run_pids if (stat := procfs.read_process_stat(pid)) is not None}
    below = set(tids)
    while more := {pid for pid, stat in stats.items() if stat.ppid in below} - below:
        below |= more
    children = {pid: Usage(now_s, stats[pid].cpu_s, procfs.read_io(pid)) for pid in below - tids.keys()}
    return StandstillReading(blocked, {pid: Usage(now_s, 0.0, procfs.read_io(pid)) for pid in tids}, children)


def bytes_per_s(before: Usage | None, after: Usage | None) -> float | None:
    """The rate between two readings; None if either is unknown.

    Bytes through system calls and bytes to the disk overlap, and each has what the other lacks (the page cache,
    mapped files): the greater of the two counts.
    """
    if before is None or after is None or before.io is None or after.io is None or after.t <= before.t:
        return None
    moved = max(after.io.by_calls - before.io.by_calls, after.io.by_disk - before.io.by_disk)
    return max(0.0, moved / (after.t - before.t))


def moving(before: StandstillReading, after: StandstillReading) -> list[int]:
    """The processes that moved between two readings: they read, wrote or received, or are children that worked."""
    found = [pid for pid, now in after.suspects.items() if _has_worked(before.suspects.get(pid), now)]
    for pid, now in after.blocked.items():
        then = before.blocked.get(pid)
        if then is not None and then.link == now.link and then.wake_ups != now.wake_ups:
            found.append(pid)
    found += [pid for pid, now in after.children.items() if _has_worked(before.children.get(pid), now)]
    return list(dict.fromkeys(found))


def _has_worked(before: Usage | None, after: Usage) -> bool:
    if before is None or after.t <= before.t:
        return False
    has_computed = (after.cpu_s - before.cpu_s) / (after.t - before.t) >= LARGE
    return has_computed or (bytes_per_s(before, after) or 0.0) >= MOVING_BYTES_PER_S


def idle_peers(
    pid: int, before: StandstillReading, after: StandstillReading, run_pids: Collection[int]
) -> list[int] | None:
    """The run's processes at the other end of a suspect's connection, if all wait: ``StandingProcess.peers``."""
    now = after.blocked.get(pid)
    if now is None or before.blocked.get(pid) != now:
        return None
    peers = connections.other_ends(pid, now.link, run_pids)
    if not peers or any(connections.is_sleeping(peer) for peer in peers):
        return None
    return None if any(connections.has_other_connections(peer, run_pids) for peer in peers - {pid}) else sorted(peers)


# -- the record, and when it is taken

#: Limits of a record: groups, threads of one, and innermost frames of a stack; with lines of 100 bytes 150 kB.
GROUPS = 48
THREADS = 256
LISTED_DEPTH = 32


class StackGroups(Struct, frozen=True, gc=False):
    """Threads grouped by equal stacks: groups with main and training threads first, then by size."""

    groups: list[StackGroup]
    folded: int  # threads of groups that have no room
    idle: int  # threads without user code


def group_stacks(
    threads: Iterable[tuple[int, SampledThread]], code: Mapping[int, ProcessCode], training: Collection[int] = ()
) -> StackGroups:
    """Group threads, given with their pids; ``code``: of each process.

    Main threads are always listed, and those that train elsewhere: their ids are ``training``.
    """
    members: dict[tuple[RawFrame, ...], list[tuple[int, int]]] = {}
    idle = 0
    for pid, thread in threads:
        frames = tuple(frame for frame in thread.stack if not is_agent_file(frame.file))
        if thread.tid not in (pid, *training) and not any(code[pid].is_user(frame.file) for frame in frames):
            idle += 1
            continue
        members.setdefault(frames, []).append((pid, thread.tid))
    is_first = {frames: any(pid == tid or tid in training for pid, tid in found) for frames, found in members.items()}
    ordered = sorted(members.items(), key=lambda item: (not is_first[item[0]], -len(item[1])))
    groups = []
    for frames, found in ordered[:GROUPS]:
        shown = [code[found[0][0]].frame(frame) for frame in frames[-LISTED_DEPTH:]]
        groups.append(StackGroup(shown, len(frames) - len(shown), found[:THREADS], max(0, len(found) - THREADS)))
    return StackGroups(groups, sum(len(found) for _, found in ordered[GROUPS:]), idle)


#: Seconds over which reading and writing are measured before the stacks are taken, and between later measurements.
_BEFORE_S = 2.0
_AGAIN_S = 5.0


class _Watch:
    """One standstill."""

    def __init__(self, suspicion: Suspicion, waiting: StandstillReading, now_s: float) -> None:
        self.suspicion = suspicion
        self.waiting = waiting
        self.due_s = now_s + _BEFORE_S
        self.is_taken = False
        self.recorders: Recorders | None = None  # once the stacks are taken


class StandstillSource(Source):
    """Idle until the monitor suspects a hang. Stacks are taken by py-spy, or by agents if py-spy is denied."""

    name = "standstill"

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic) -> None:
        self.period_s = 0.5
        self._table = table
        self._clock = clock
        self._watch: _Watch | None = None

    def read(self) -> Iterable[Record]:
        """The stacks, once per standstill; or a record that processes move, whenever they do."""
        suspicion, watch, now_s = self._table.suspicion, self._watch, self._clock()
        if suspicion is None:  # for a moment, or for good: what is known of this standstill is kept
            return
        if watch is None or suspicion.since_s > watch.suspicion.since_s + 1.0:
            waiting = take_reading(suspicion.processes, self._table.pids(), now_s)
            self._watch = _Watch(suspicion, waiting, now_s)
        elif now_s >= watch.due_s:
            yield from self._inspected(watch, now_s)
        elif watch.recorders is not None and (ranks := watch.recorders.read_new()):
            yield Collectives(t=round(now_s, 3), pid=0, ranks=ranks)

    def _inspected(self, watch: _Watch, now_s: float) -> Iterable[Record]:
        before, after = watch.waiting, take_reading(watch.suspicion.processes, self._table.pids(), now_s)
        watch.waiting, watch.due_s = after, now_s + _AGAIN_S
        quiet_s = round(now_s - watch.suspicion.since_s, 3)
        if moved := moving(before, after):
            yield Standstill(t=round(now_s, 3), pid=0, quiet_s=quiet_s, moving=moved)
        elif not watch.is_taken:
            from tuimon.sources.flight_recorders import Recorders  # noqa: PLC0415  (only a hang needs pickle)

            watch.is_taken = True
            watch.recorders = Recorders(watch.suspicion.processes, quiet_s)
            watch.recorders.request()  # they are written while the stacks are taken
            yield self._taken(watch.suspicion, before, after)

    def _taken(self, suspicion: Suspicion, before: StandstillReading, after: StandstillReading) -> Standstill:
        live = [
            (each, ticks) for each in suspicion.processes if (ticks := self._table.start_ticks(each.pid)) is not None
        ]
        stacks = take_stacks([each.pid for each, _ in live], suspicion.since_s)
        facts, code = SourceFacts(), dict[int, ProcessCode]()
        threads, processes = list[tuple[int, SampledThread]](), list[StandingProcess]()
        for each, ticks in live:
            pid, taken = each.pid, stacks[each.pid]
            own, unknown = ((), taken) if isinstance(taken, str) else (taken, None)
            threads += ((pid, thread) for thread in own)
            code[pid] = ProcessCode(TargetFiles(pid, start_unix_s(ticks)), facts, self._table.programs)
            stat, trains = procfs.read_thread_stat(pid, pid), each.tid or pid
            now = next((thread.stack for thread in own if thread.tid == trains), None)
            if unknown is None and each.tid is not None and now is None:
                unknown = "its training thread has ended"
            trained = suspicion.loops.get(pid, ())
            processes.append(
                structs.replace(
                    each,
                    state=THREAD_STATES.get(stat.state, "waiting") if stat is not None else "ended",
                    io_bytes_per_s=bytes_per_s(before.suspects.get(pid), after.suspects.get(pid)),
                    unknown=unknown,
                    has_left=bool(trained) and all(has_left(now or (), loop, code[pid]) for loop in trained),
                    peers=idle_peers(pid, before, after, self._table.pids()),
                    listens=connections.listens(pid),
                )
            )
        training = {each.tid for each, _ in live if each.tid is not None}
        groups = group_stacks(threads, code, training)
        now_s = self._clock()
        return Standstill(
            t=round(now_s, 3),
            pid=0,
            quiet_s=round(now_s - suspicion.since_s, 3),
            processes=processes,
            groups=groups.groups,
            folded=groups.folded,
            idle=groups.idle,
        )


def has_left(now: Sequence[RawFrame], trained: Sequence[Frame | RawFrame], code: ProcessCode) -> bool:
    """True if no loop holds both where a thread is (``now``) and where it trained; frames root first.

    If ``main()`` calls ``fit()`` in a ``for`` and ``serve()`` below it, ``serve()`` has left the loop; what follows
    ``fit()`` inside the ``for`` has not. False if the source is not known, or one line calls both: that loop may
    be in C.
    """
    here, there = ([frame for frame in frames if not is_agent_file(frame.file)] for frames in (now, trained))
    for depth, (one, other) in enumerate(zip(here, there, strict=False)):
        if code.named(one).code != code.named(other).code:
            return depth == 0  # below, one line calls both
        if code.facts(one.file).in_one_loop(one.line, other.line) is not False:
            return False
        if one.line != other.line:
            return True
    return False
