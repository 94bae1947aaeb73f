"""One process of the run, as the process source follows it, with the counters of its threads."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from contextlib import suppress

from msgspec import Struct, field

from tuimon.bounds import MANY_HELD
from tuimon.proc import procfs
from tuimon.proc.procfs import Stat, open_files, own_bytes, private_bytes, read_io
from tuimon.proc.ring_facts import why_no_ring
from tuimon.records import Process, ThreadCpu, ThreadFaults, Threads, ThreadState
from tuimon.sources.processes.roles import ProcessFacts, fingerprint, read_facts
from tuimon.threshold import TINY

#: Rows of a Threads record: what a terminal shows and the log has room for.
THREAD_ROWS = 32
_NS_PER_TICK = 1_000_000_000 // procfs.TICKS_PER_S
#: A thread that slept through this many reads rests: it is then read only once in a number of reads, unless a thread
#: that was not read may have run.
_RESTS_AFTER = 4
_RESTING_READS = 8
#: CPU time of a process that threads may have used before those that rest are read: the kernel counts it in ticks.
_UNEXPLAINED_NS = 3 * _NS_PER_TICK
_NUMBER_AT_END = re.compile(r"\d+$")
#: States by the kernel's letters; every other letter is a thread that waits.
THREAD_STATES: dict[str, ThreadState] = {
    "R": "running", "D": "disk", "T": "stopped", "t": "stopped", "Z": "ended", "X": "ended",
}  # fmt: skip


class _Thread(Struct):
    """A thread's counters now and at the start of the window."""

    name: str
    state: str
    cpu_ns: int
    delay_ns: int | None  # None: the kernel does not count it
    begin_cpu_ns: int | None  # None: not known yet
    begin_delay_ns: int
    faults: tuple[int, int]  # minor and major
    begin_faults: tuple[int, int]
    slept: int = 0  # reads in a row in which it slept


class ThreadMeter:
    """Reads the counters of a process's threads; that takes about 8 us for a thread that slept, 20 us for one that ran.

    Threads that sleep on are read in turns, a few each time. If the process has used more CPU than the others account
    for, all are read.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stat = procfs.HeldFile(f"/proc/{pid}/stat")
        self._threads: dict[int, _Thread] = {}
        #: the process as it was read last; None when it is gone
        self.process: procfs.Stat | None = None
        self._reads = 0
        self._ended_ns = 0  # CPU of the process that is in none of its threads
        self._begun = False
        self._vanished: list[int] = []  # threads that have ended in this window
        self.faults: list[ThreadFaults] = []  # in the window that ended last

    def close(self) -> None:
        """Close all files."""
        self._stat.close()

    def read_process(self) -> None:
        """Read the counters of the process, and whether it still exists."""
        self.process = procfs.parse_stat(self._stat.read())

    def read(self) -> None:
        self.read_process()
        if self.process is None:
            return
        self._reads += 1
        idle = (tid for tid, thread in self._threads.items() if thread.slept >= _RESTS_AFTER and tid != self._pid)
        resting = [tid for tid in idle if (tid + self._reads) % _RESTING_READS != 0]  # not read this time
        read = [self._read_thread(tid) for tid in self._threads.keys() - resting]
        if self._unexplained_ns() - self._ended_ns > _UNEXPLAINED_NS:
            read += [self._read_thread(tid) for tid in resting]
            self._ended_ns = self._unexplained_ns()
        if len(self._threads) == self.process.threads and all(read):  # the same threads as before: no need to list them
            return
        tids = set(procfs.thread_ids(self._pid))
        for tid in self._threads.keys() - tids:
            del self._threads[tid]
            self._vanished.append(tid)
        for tid in sorted(tids - self._threads.keys()):
            self._read_thread(tid)
        self._ended_ns = self._unexplained_ns()
        if not tids:
            self.process = None

    def _unexplained_ns(self) -> int:
        """CPU time of the process beyond that of its threads as they were read last."""
        used_s = self.process.cpu_s if self.process is not None else 0.0
        return round(used_s * 1e9) - sum(thread.cpu_ns for thread in self._threads.values())

    def _read_thread(self, tid: int) -> bool:
        """Read one; False when it has ended."""
        before = self._threads.get(tid)
        sched = procfs.read_schedstat(self._pid, tid)
        # A thread that did not run since it slept sleeps on, under the same name.
        if before and sched and sched.cpu_ns == before.cpu_ns and before.state != "R":
            before.delay_ns = sched.delay_ns
            before.slept += before.state == "S"
            return True
        stat = procfs.read_thread_stat(self._pid, tid)
        if stat is None:
            return False
        cpu_ns = sched.cpu_ns if sched else stat.cpu_ticks * _NS_PER_TICK
        delay_ns, faults = sched.delay_ns if sched else None, (stat.minor_faults, stat.major_faults)
        if before is None:
            # in a process that we know, a new thread began within this window: from zero
            begin_cpu_ns = 0 if self._begun else None
            before = _Thread(stat.name, stat.state, cpu_ns, delay_ns, begin_cpu_ns, 0, faults, (0, 0))
            self._threads[tid] = before
        before.name, before.state, before.faults = stat.name, stat.state, faults
        before.cpu_ns, before.delay_ns, before.slept = cpu_ns, delay_ns, 0
        return True

    def end_window(self, window_s: float) -> tuple[list[ThreadCpu], int, float | None, list[int]]:
        """The window's rows, the number of threads in none of them, their CPU, and ids of threads that have ended.

        The CPU is that of the whole process; None if unknown.
        """
        rows, window_ns, found = list[ThreadCpu](), window_s * 1e9, dict[int, ThreadFaults]()
        for tid, thread in self._threads.items():
            cpu_ratio = delay_ratio = None
            if thread.begin_cpu_ns is not None:
                cpu_ratio = round(max(thread.cpu_ns - thread.begin_cpu_ns, 0) / window_ns, 3)
                if thread.delay_ns is not None:
                    delay_ratio = round(max(thread.delay_ns - thread.begin_delay_ns, 0) / window_ns, 3)
            state = THREAD_STATES.get(thread.state, "waiting")
            rows.append(ThreadCpu(tid, thread.name, cpu_ratio, state, delay_ratio))
            if thread.begin_cpu_ns is not None and thread.faults != thread.begin_faults:
                hz = ((now - then) / window_s for now, then in zip(thread.faults, thread.begin_faults, strict=True))
                found[tid] = ThreadFaults(tid, *(round(each, 1) for each in hz))
        ratios = [row.cpu_ratio for row in rows]
        known = [ratio for ratio in ratios if ratio is not None]
        complete = len(known) == len(ratios) and not self._vanished and bool(ratios)
        for thread in self._threads.values():
            thread.begin_cpu_ns, thread.begin_delay_ns = thread.cpu_ns, thread.delay_ns or 0
            thread.begin_faults = thread.faults
        self._begun = True
        ended, self._vanished = self._vanished[-16:], []
        listed, folded = list_rows(rows, self._pid)
        self.faults = [found[row.tid] for row in listed if row.tid in found]
        return listed, folded, round(sum(known), 3) if complete else None, ended


def list_rows(rows: list[ThreadCpu], main: int) -> tuple[list[ThreadCpu], int]:
    """The main thread, then the busiest, 32 in all; idle ones that are named alike but for a number share a row.

    Also returns how many threads are in no row.
    """
    alike: defaultdict[tuple[str, str], list[ThreadCpu]] = defaultdict(list)
    single: list[ThreadCpu] = []
    for row in rows:
        if row.tid != main and row.cpu_ratio is not None and row.cpu_ratio < TINY and row.state == "waiting":
            alike[_NUMBER_AT_END.sub("", row.name), row.state].append(row)
        else:
            single.append(row)
    single += [_merged(stem, group) for (stem, _), group in alike.items()]
    single.sort(key=lambda row: (row.tid != main, -(row.cpu_ratio or 0.0), row.tid))
    return single[:THREAD_ROWS], sum(row.count for row in single[THREAD_ROWS:])


def _merged(stem: str, group: list[ThreadCpu]) -> ThreadCpu:
    if len(group) == 1:
        return group[0]
    first = min(group, key=lambda row: row.tid)
    name = first.name if all(row.name == first.name for row in group) else stem + "*"
    delays = [row.delay_ratio for row in group if row.delay_ratio is not None]
    cpu_ratio = round(sum(row.cpu_ratio or 0.0 for row in group), 3)
    return ThreadCpu(first.tid, name, cpu_ratio, first.state, max(delays, default=None), len(group))


#: Bytes of one reading from which the file is searched for: logs write less, checkpoints more.
_MUCH_BYTES = 4 << 20
#: In the names of our own files, which a training writes all the time.
_RING = "/tuimon-"


class WriteMeter(Struct):
    """Measures how much one process gives the kernel to write (proc_pid_io(5): wchar)."""

    pid: int
    before_bytes: int | None = None

    def read(self) -> tuple[int | None, str]:
        """Bytes since the last call, None at first; and the type of the file system, if a file is open."""
        io = read_io(self.pid)
        total = io.written if io is not None else None
        before, self.before_bytes = self.before_bytes, total
        if total is None or before is None:
            return None, ""
        written = total - before
        return written, _file_system(self.pid, written) if written >= _MUCH_BYTES else ""


def _file_system(pid: int, written_bytes: int) -> str:
    """The type of the file system that most of these bytes went to, by the largest open file; empty if unknown.

    Formats: proc_pid_fdinfo(5), proc_pid_mountinfo(5).
    """
    found: list[tuple[int, str]] = []
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd")[:MANY_HELD]:
            link = f"/proc/{pid}/fd/{number}"
            with suppress(OSError):
                path, file = os.readlink(link), os.stat(link)
                is_new = stat.S_ISREG(file.st_mode) and time.time() - file.st_mtime < 3.0
                if is_new and 2 * file.st_size >= written_bytes and not path.startswith("/dev/") and _RING not in path:
                    found.append((file.st_size, number))
        info = (procfs.read_bytes(f"/proc/{pid}/fdinfo/{max(found)[1]}", 256) or b"") if found else b""
        mount = info.partition(b"mnt_id:")[2].split(maxsplit=1)[:1]
        for line in procfs.read_whole(f"/proc/{pid}/mountinfo").splitlines() if mount else ():
            if line.split(maxsplit=1)[:1] == mount:
                return line.partition(b" - ")[2].split(maxsplit=1)[0].decode("utf-8", "replace")[:40]
    return ""


class ChildrensCpu(Struct):
    """CPU of a process's children that is in no record of theirs: their first and last moments, or a whole short life.

    Without this, a third of the CPU of workers that are restarted each epoch would seem to belong to other programs.
    """

    reported_s: float = 0.0  # of the children that it has waited for, in records so far
    unreported_s: float = 0.0  # for the next record

    def begin_child(self, used_s: float) -> None:
        """Add the CPU that a new child had used before its first window."""
        self.unreported_s += used_s

    def end_child(self, reported_s: float) -> None:
        """Note that a child has ended; ``reported_s``: CPU of the child and its own children that is in records."""
        self.reported_s += reported_s

    def take(self, waited_s: float) -> None:
        """Set ``waited_s``: the CPU that the children it has waited for had used.

        It was read before the children were, so that the ends of all those children have been seen.
        """
        unreported_s = waited_s - self.reported_s
        if unreported_s >= 0.05:  # less is within the grain of the kernel's clock and of rounded windows
            self.unreported_s += unreported_s
            self.reported_s += unreported_s

    def pass_unreported(self) -> float | None:
        """Return and clear the CPU time to report; None if there is none."""
        unreported_s, self.unreported_s = self.unreported_s, 0.0
        return round(unreported_s, 2) or None


#: Between two readings of what a process shares with no other, in seconds.
_PRIVATE_EVERY_S = 1.9
#: The largest share of a core for reading private memory, for which the kernel walks all pages of a process.
_PRIVATE_RATIO = 0.005


class FollowedProcess(Struct):
    """One process of the run."""

    start_ticks: int
    facts: ProcessFacts
    meter: ThreadMeter
    children: ChildrensCpu = field(default_factory=ChildrensCpu)
    reported_s: float = 0.0  # CPU time that is in its records, or from before the first of them
    reads: int = 0
    fingerprint: int = 0  # ``roles.fingerprint`` when its facts were read
    no_ring: str | None = None  # why it has no ring, as it reports itself
    read_s: float = 0.0
    reported: Process | None = None
    known: tuple[object, ...] = ()  # the values that ``reported`` was made from
    window_from_s: float | None = None
    window_cpu_s: float | None = None  # of the whole process when the window began
    least_window_s: float = 0.0  # its threads are not read before a window of this length
    writing: WriteMeter | None = None  # once it trains
    private_due_s: float = 0.0  # its private memory is not read before this

    def read(self, now_s: float) -> Stat | None:
        """Read the counters of its threads, if due; returns those of the process, None if it has ended."""
        if self.window_from_s is None or now_s - self.window_from_s >= self.least_window_s:
            self.read_s = now_s
            self.meter.read()
        else:
            self.meter.read_process()
        process = self.meter.process
        if process is None or process.state in "ZX" or process.start_ticks != self.start_ticks:
            return None
        return process

    def refresh(self, name: str, *, orphaned: bool) -> None:
        """Read its facts again if they may have changed: after an exec, if its parent has ended, and now and then."""
        self.reads += 1
        if not self.reads & (self.reads - 1) and self.no_ring is None and self.facts.is_python:  # 1, 2, 4, ...
            self.no_ring = why_no_ring(self.facts.pid)
        is_due = name != self.facts.name or orphaned or not self.facts.command
        if not is_due and self.reads % 10 == 0:  # program or variables may be new; if no Python, libraries
            before, self.fingerprint = self.fingerprint, fingerprint(self.facts.pid)
            is_due = before != self.fingerprint or not self.facts.is_python
        if is_due:
            self.facts = read_facts(self.facts.pid, name) or self.facts

    def begin_window(self) -> None:
        """Begin a window of Threads with the latest counters."""
        self.window_from_s = self.read_s
        self.window_cpu_s = self.meter.process.cpu_s if self.meter.process is not None else None

    def end_window(self, window_s: float, now_s: float, *, private: bool = False, trains: bool = False) -> Threads:
        """The record of the window that ends with the latest counters; begins the next window.

        ``private``: with its private memory, if that is due; ``trains``: with what it writes.
        """
        pid, self.writing = self.facts.pid, self.writing or (WriteMeter(self.facts.pid) if trains else None)
        written_bytes, written_to = self.writing.read() if self.writing is not None and trains else (None, "")
        rows, folded, cpu_ratio, ended = self.meter.end_window(window_s)
        used = self.meter.process
        cpu_s = used.cpu_s if used is not None else None
        if cpu_ratio is None and cpu_s is not None and self.window_cpu_s is not None:
            cpu_ratio = round(max(cpu_s - self.window_cpu_s, 0.0) / window_s, 3)  # threads have come or gone
        self.begin_window()
        self.reported_s += (cpu_ratio or 0.0) * window_s
        return Threads(
            t=round(now_s, 3),
            pid=pid,
            window_s=round(window_s, 3),
            cpu_ratio=cpu_ratio,
            rss_bytes=(used.rss_bytes or None) if used is not None else None,  # 0: it exits
            own_bytes=own_bytes(pid),
            private_bytes=self._private_bytes(now_s) if private else None,
            written_bytes=written_bytes,
            written_to=written_to,
            open_files=open_files(pid) if self.facts.is_python else None,
            threads=rows,
            faults=self.meter.faults,
            folded=folded,
            ended=tuple(ended),
            ended_cpu_s=self.children.pass_unreported(),
        )

    def _private_bytes(self, now_s: float) -> int | None:
        """The memory that it shares with no other process; None if it is not due to be read."""
        if now_s < self.private_due_s:
            return None
        began_s = time.thread_time()
        held = private_bytes(self.facts.pid)
        self.private_due_s = now_s + max(_PRIVATE_EVERY_S, (time.thread_time() - began_s) / _PRIVATE_RATIO)
        return held

    def is_idle(self, now_s: float) -> bool:
        """True if it has used less than a hundredth of a core since its window began."""
        if self.window_from_s is None or self.window_cpu_s is None or now_s <= self.window_from_s:
            return False
        used = self.meter.process
        return used is not None and used.cpu_s - self.window_cpu_s < TINY * (now_s - self.window_from_s)
