"""CPU, state and run-queue delay of the threads of one process, as rows of a Threads record."""

from __future__ import annotations

import re
from collections import defaultdict

from msgspec import Struct

from tuimon.proc import procfs
from tuimon.records import ThreadCpu, ThreadState

#: Rows of a Threads record: what a terminal shows and the log has room for.
ROWS = 32
#: Threads that have ended of which a record tells.
_ENDED = 16
#: The share of a core below which threads may share a row.
IDLE_RATIO = 0.01
_NS_PER_TICK = 1_000_000_000 // procfs.TICKS_PER_S
#: A thread that slept through so many reads rests: it is read in every so many reads, unless a thread may have run
#: that was not read.
_RESTS_AFTER = 4
_RESTING_READS = 8
#: CPU time of a process that threads may have used before those that rest are read: the kernel counts it in ticks.
_UNEXPLAINED_NS = 3 * _NS_PER_TICK
_NUMBER_AT_END = re.compile(r"\d+$")
_STATES: dict[str, ThreadState] = {
    "R": "running",
    "D": "disk",
    "T": "stopped",
    "t": "stopped",
    "Z": "ended",
    "X": "ended",
}


class _Thread(Struct):
    """A thread's counters now and at the start of the window."""

    name: str
    state: str
    cpu_ns: int
    delay_ns: int | None  # None: the kernel does not count it
    begin_cpu_ns: int | None  # None: not known yet
    begin_delay_ns: int
    slept: int = 0  # through so many reads


class ThreadMeter:
    """Follows the threads of one process; reading costs about 8 us a thread that slept, 20 us one that ran.

    Threads that sleep on are read in turns, a few each time. If the process has used more CPU than the others account
    for, all are read.

    Its own readers of /proc: psutil has no name, state or run-queue delay of threads, and takes 15 us a thread for the
    CPU time alone (measured with 1,000 threads: 15 ms a read against 8 ms).
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stat = procfs.HeldFile(f"/proc/{pid}/stat")
        self._threads: dict[int, _Thread] = {}
        #: the process as it was read last; None when it is gone
        self.process: procfs.ProcessStat | None = None
        self._reads = 0
        self._ended_ns = 0  # CPU of the process that is in none of its threads
        self._begun = False
        self._vanished: list[int] = []  # threads that have ended in this window

    def close(self) -> None:
        """Hold nothing open any more."""
        self._stat.close()

    def read_process(self) -> None:
        """Read what the process has used, and whether it is still there."""
        self.process = procfs.parse_process_stat(self._stat.read())

    def read(self) -> None:
        """Read all counters."""
        self.read_process()
        if self.process is None:
            return
        self._reads += 1
        idle = (tid for tid, thread in self._threads.items() if thread.slept >= _RESTS_AFTER and tid != self._pid)
        resting = [tid for tid in idle if (tid + self._reads) % _RESTING_READS != 0]  # not read this time
        read = [self._read_thread(tid, self.process) for tid in self._threads.keys() - resting]
        if self._unexplained_ns() - self._ended_ns > _UNEXPLAINED_NS:
            read += [self._read_thread(tid, self.process) for tid in resting]
            self._ended_ns = self._unexplained_ns()
        if len(self._threads) == self.process.threads and all(read):  # the same threads as before: no need to list them
            return
        tids = set(procfs.thread_ids(self._pid))
        for tid in self._threads.keys() - tids:
            del self._threads[tid]
            self._vanished.append(tid)
        for tid in sorted(tids - self._threads.keys()):
            self._read_thread(tid, self.process)
        self._ended_ns = self._unexplained_ns()
        if not tids:
            self.process = None

    def _unexplained_ns(self) -> int:
        """CPU of the process beyond that of its threads as they were read last."""
        used_s = self.process.cpu_s if self.process is not None else 0.0
        return round(used_s * 1e9) - sum(thread.cpu_ns for thread in self._threads.values())

    def _read_thread(self, tid: int, process: procfs.ProcessStat) -> bool:
        """Read one; False when it has ended."""
        before = self._threads.get(tid)
        sched = procfs.read_schedstat(self._pid, tid)
        # A thread that did not run since it slept sleeps on, under the same name.
        if before and sched and sched.cpu_ns == before.cpu_ns and before.state != "R":
            before.delay_ns = sched.delay_ns
            before.slept += before.state == "S"
            return True
        if tid == self._pid and sched:
            name, state, cpu_ns = process.name, process.state, sched.cpu_ns
        else:
            stat = procfs.read_thread_stat(self._pid, tid)
            if stat is None:
                return False
            name, state, cpu_ns = stat.name, stat.state, sched.cpu_ns if sched else stat.cpu_ticks * _NS_PER_TICK
        delay_ns = sched.delay_ns if sched else None
        if before is None:
            # in a process that we know, a new thread began within this window: from zero
            before = _Thread(name, state, cpu_ns, delay_ns, 0 if self._begun else None, 0)
            self._threads[tid] = before
        before.name, before.state = name, state
        before.cpu_ns, before.delay_ns, before.slept = cpu_ns, delay_ns, 0
        return True

    def end_window(self, window_s: float) -> tuple[list[ThreadCpu], int, float | None, list[int]]:
        """Rows since the last call, how many threads are in none of them, CPU of all (None if not known).

        And the latest threads that have ended meanwhile.
        """
        rows, window_ns = list[ThreadCpu](), window_s * 1e9
        for tid, thread in self._threads.items():
            cpu_ratio = delay_ratio = None
            if thread.begin_cpu_ns is not None:
                cpu_ratio = round(max(thread.cpu_ns - thread.begin_cpu_ns, 0) / window_ns, 3)
                if thread.delay_ns is not None:
                    delay_ratio = round(max(thread.delay_ns - thread.begin_delay_ns, 0) / window_ns, 3)
            state = _STATES.get(thread.state, "waiting")
            rows.append(ThreadCpu(tid, thread.name, cpu_ratio, state, delay_ratio))
        ratios = [row.cpu_ratio for row in rows]
        known = [ratio for ratio in ratios if ratio is not None]
        complete = len(known) == len(ratios) and not self._vanished and bool(ratios)
        for thread in self._threads.values():
            thread.begin_cpu_ns, thread.begin_delay_ns = thread.cpu_ns, thread.delay_ns or 0
        self._begun = True
        ended, self._vanished = self._vanished[-_ENDED:], []
        listed, folded = list_rows(rows, self._pid)
        return listed, folded, round(sum(known), 3) if complete else None, ended


def list_rows(rows: list[ThreadCpu], main: int) -> tuple[list[ThreadCpu], int]:
    """The main thread, then the busiest, 32 in all; idle ones that are named alike but for a number share a row.

    Also returns how many threads are in no row.
    """
    alike: defaultdict[tuple[str, str], list[ThreadCpu]] = defaultdict(list)
    single: list[ThreadCpu] = []
    for row in rows:
        if row.tid != main and row.cpu_ratio is not None and row.cpu_ratio < IDLE_RATIO and row.state == "waiting":
            alike[_NUMBER_AT_END.sub("", row.name), row.state].append(row)
        else:
            single.append(row)
    single += [_merged(stem, group) for (stem, _), group in alike.items()]
    single.sort(key=lambda row: (row.tid != main, -(row.cpu_ratio or 0.0), row.tid))
    return single[:ROWS], sum(row.count for row in single[ROWS:])


def _merged(stem: str, group: list[ThreadCpu]) -> ThreadCpu:
    if len(group) == 1:
        return group[0]
    first = min(group, key=lambda row: row.tid)
    name = first.name if all(row.name == first.name for row in group) else stem + "*"
    delays = [row.delay_ratio for row in group if row.delay_ratio is not None]
    cpu_ratio = round(sum(row.cpu_ratio or 0.0 for row in group), 3)
    return ThreadCpu(first.tid, name, cpu_ratio, first.state, max(delays, default=None), len(group))
