"""Where the CPU time of the run's threads goes, Python or not, by phase: samples of the kernel's, at almost no cost.

No thread is stopped for them: 23 times in each second of a thread's CPU time the kernel notes the address that it is
at, in a ring that is read once a second. py-spy's ``--native`` stops all threads of a process for each sample, and
unwinds their stacks.
"""

from __future__ import annotations

import errno
import time
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from msgspec import Struct, field

from tuimon.native_code import GENERATED, NUMBA, UNKNOWN, library_of
from tuimon.proc import procfs
from tuimon.proc.procfs import read_maps
from tuimon.records import BETWEEN, PHASES, Native, NativeCode, NativeThread, Notice, Record, ThreadCpu
from tuimon.sources.base import Done, Source
from tuimon.sources.loop.step import PhaseEnd
from tuimon.sources.native.thread_clock import PERIOD_NS, ThreadClock, why_none
from tuimon.sources.process_table import ProcessTable

#: Pause after which the mappings are read again for an address in no known library (s); doubled each time in vain.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
#: Threads that are sampled at once: reading a busy one costs 0.02 % of a core.
_THREADS = 64
#: Threads that use less of a core are not sampled.
_LEAST_RATIO = 0.02
#: Between two records of a process; the first comes sooner.
_WINDOW_S, _FIRST_WINDOW_S = 4.0, 2.0
#: Phases are known some time after their samples, of many ranks up to some windows.
_WAIT_NS = 10_000_000_000
#: Most rows of one thread; rarer code counts as unknown.
_ROWS = 24
#: Phases of a training process that wait to be taken: those of half a minute of a fast loop.
_PHASES = 1 << 16
#: The labels of phases in a record; other time has no phase that is known.
_LABELS = frozenset((*PHASES, BETWEEN))


class Libraries:
    """The libraries of one process, as it has mapped them."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begins: list[int] = []
        self._mapped: list[tuple[int, str]] = []  # end and name of each
        self._due_s, self._pause_s = 0.0, _FIRST_PAUSE_S

    def at(self, address: int) -> str:
        """The name of the library that an address lies in."""
        name = self._find(address)
        if name is None and (now_s := time.monotonic()) >= self._due_s:
            self.replace(read_maps(self._pid))
            name = self._find(address)
            self._pause_s = _FIRST_PAUSE_S if name is not None else min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._due_s = now_s + self._pause_s
        return name or UNKNOWN.name

    def _find(self, address: int) -> str | None:
        at = bisect_right(self._begins, address) - 1
        return self._mapped[at][1] if at >= 0 and address < self._mapped[at][0] else None

    def replace(self, maps: bytes) -> None:
        """Take the lines of /proc/PID/maps, in order of their addresses, for what is mapped now."""
        generated = (NUMBA if b"libllvmlite" in maps else GENERATED).name
        self._begins.clear()
        self._mapped.clear()
        for line in maps.splitlines():
            addresses, rights, _, _, _, *path = line.split(maxsplit=5)
            if b"x" in rights:
                begin, end = (int(address, 16) for address in addresses.split(b"-"))
                file = path[0].decode("utf-8", "replace").removesuffix(" (deleted)") if path else ""
                is_file = file.startswith(("/", "[vdso]")) and not file.startswith(("/memfd:", "/dev/zero"))
                self._begins.append(begin)
                self._mapped.append((end, library_of(file) if is_file else generated))


class _Thread(Struct):
    """A thread that is sampled."""

    clock: ThreadClock
    code: Counter[tuple[str, str]] = field(default_factory=Counter)  # by library and phase, in this window
    waiting: deque[tuple[int, str]] = field(default_factory=deque)  # when, and library: no phase known yet
    cpu_ns: int = 0  # until this window


class _Process(Struct):
    """A process whose threads are sampled."""

    libraries: Libraries
    from_s: float
    due_s: float
    threads: dict[int, _Thread] = field(default_factory=dict)
    phases: list[PhaseEnd] = field(default_factory=list)  # of a training process; samples may still lie in them


class NativeSource(Source):
    """Samples the busiest threads of all processes of the run; ends, with a notice, where that is not allowed."""

    name = "native"
    period_s = 1.0

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._processes: dict[int, _Process] = {}
        self._denied: tuple[str, str] | None = None

    def read(self) -> Iterable[Record]:
        """The windows that have ended, after what the kernel has noted since the last read."""
        now_s = time.monotonic()
        for pid, process in [*self._processes.items()]:
            for thread in process.threads.values():
                self._read_thread(process, thread)
            has_ended = pid not in self._table.roles
            self._join(pid, process, now_s, 0 if has_ended else _WAIT_NS)
            if has_ended or now_s >= process.due_s:
                yield from self._records(pid, process, now_s)
            if has_ended:
                self._drop(pid)
        self._choose(now_s)
        if self._denied is not None:
            message = f"{self._denied[0]}: what runs below Python is not measured (see tuimon doctor)"
            yield Notice(t=now_s, pid=0, source=self.name, level="info", message=message)
            raise Done

    def close(self) -> None:
        """End all sampling."""
        for pid in [*self._processes]:
            self._drop(pid)

    def _choose(self, now_s: float) -> None:
        """Sample the busiest thread of each process, then the next of each ..., as many as there may be."""
        busy = (
            [
                (pid, row.tid)
                for row in sorted(rows, key=lambda row: -(row.cpu_ratio or 0.0))
                if self._is_asked(pid, row)
            ]
            for pid, rows in self._table.running.copy().items()
        )
        wanted = [each for turn in zip_longest(*busy) for each in turn if each is not None][:_THREADS]
        sampled = {(pid, tid) for pid, process in self._processes.items() for tid in process.threads}
        idle = sampled.difference(wanted)
        room = _THREADS - len(sampled)
        for pid, tid in wanted:
            if (pid, tid) not in sampled and self._denied is None:
                if room <= 0:
                    self._end_thread(*idle.pop())
                room -= 1
                self._begin_thread(pid, tid, now_s)

    def _is_asked(self, pid: int, row: ThreadCpu) -> bool:
        is_of_training = self._table.roles.get(pid, "other") != "other"
        return is_of_training and row.count == 1 and (row.cpu_ratio or 0.0) >= _LEAST_RATIO

    def _begin_thread(self, pid: int, tid: int, now_s: float) -> None:
        try:
            clock = ThreadClock(tid)
        except OSError as error:
            if error.errno not in (errno.ESRCH, *procfs.SHORTAGES):
                self._denied = why_none()
            return
        process = self._processes.get(pid)
        if process is None:
            process = self._processes[pid] = _Process(Libraries(pid), now_s, now_s + _FIRST_WINDOW_S)
        process.threads[tid] = _Thread(clock)

    def _end_thread(self, pid: int, tid: int) -> None:
        self._processes[pid].threads.pop(tid).clock.close()

    def _drop(self, pid: int) -> None:
        for thread in self._processes.pop(pid).threads.values():
            thread.clock.close()
        self._table.phase_ends.pop(pid, None)

    def _read_thread(self, process: _Process, thread: _Thread) -> None:
        samples, lost = thread.clock.read()
        if lost:
            thread.code[UNKNOWN.name, ""] += lost
        thread.waiting.extend((when_ns, process.libraries.at(address)) for when_ns, address in samples)

    def _join(self, pid: int, process: _Process, now_s: float, wait_ns: int) -> None:
        """Assign the samples to the phases known by now; those that have waited so long for theirs get none."""
        phases = process.phases
        if pid in self._table.facts:
            taken = self._table.phase_ends.setdefault(pid, deque(maxlen=_PHASES))
            while taken:
                phases.append(taken.popleft())
        known_ns, late_ns = phases[-1].end_ns if phases else 0, int(now_s * 1e9) - (wait_ns if phases else 0)
        for thread in process.threads.values():
            waiting = thread.waiting
            while waiting and (waiting[0][0] <= known_ns or waiting[0][0] < late_ns):
                when_ns, library = waiting.popleft()
                at = bisect_left(phases, (when_ns,))
                label = phases[at].label if at < len(phases) else ""
                thread.code[library, label if label in _LABELS else ""] += 1
        del phases[: min(bisect_left(phases, (int(now_s * 1e9),)), len(phases) - 1)]  # what comes is later

    def _records(self, pid: int, process: _Process, now_s: float) -> Iterator[Native]:
        rows = []
        for tid, thread in [*process.threads.items()]:
            cpu_ns = thread.clock.cpu_ns() - len(thread.waiting) * PERIOD_NS
            # in whole samples, and the rest with the next window: else the kernel's share is what was rounded up
            samples = max(thread.code.total(), (cpu_ns - thread.cpu_ns) // PERIOD_NS)
            if samples > 0:
                listed = thread.code.most_common(_ROWS)
                if (rest := thread.code.total() - sum(count for _, count in listed)) > 0:
                    listed.append(((UNKNOWN.name, ""), rest))
                code = [NativeCode(library, phase, count) for (library, phase), count in listed]
                rows.append(NativeThread(tid, round(samples * PERIOD_NS / 1e6, 1), code))
            thread.cpu_ns += samples * PERIOD_NS
            thread.code.clear()
            if procfs.read_schedstat(pid, tid) is None:  # it has ended, and its number may be used again
                self._end_thread(pid, tid)
        window_s = round(now_s - process.from_s, 3)
        if rows:
            yield Native(
                t=round(now_s, 3),
                pid=pid,
                window_s=window_s,
                period_ms=round(PERIOD_NS / 1e6, 3),
                threads=rows,
            )
        process.from_s, process.due_s = now_s, now_s + _WINDOW_S
