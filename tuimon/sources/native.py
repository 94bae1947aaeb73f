"""Samples of the code that the run's threads execute below Python, by phase, taken by the kernel at almost no cost.

perf_event_open(2) stops no threads: 23 times in each second of a thread's CPU time the kernel records the thread's
address in a ring, which is read every two seconds. py-spy's ``--native`` stops all threads of a process for each
sample, and unwinds their stacks.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import platform
import struct
import sys
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress

from tuimon.native_code import GENERATED, KERNEL, NUMBA, UNKNOWN_LIBRARY, library_of
from tuimon.proc import procfs
from tuimon.records import Native, NativeCode, Notice, Record
from tuimon.sources.base import Done, Source
from tuimon.sources.process_table import ProcessTable, TimedPhase
from tuimon.threshold import TINY

#: Most phases of a training process that wait for samples: those of half a minute of a fast loop.
_PHASES = 1 << 16
#: perf_event_open(2), by machine; elsewhere a call that no kernel has.
_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}.get(platform.machine(), -1)
#: Samples a second of CPU time. One takes 13 to 43 us from a training on a virtual machine (measured): 0.1 % at most.
RATE_HZ = 23
PERIOD_NS = 1_000_000_000 // RATE_HZ
#: struct perf_event_attr up to ``clockid``. PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_IP |
#: PERF_SAMPLE_TIME | PERF_SAMPLE_READ; flags exclude_kernel, exclude_hv, watermark (nobody waits for it), use_clockid.
_ATTRIBUTES = struct.Struct("<IIQQQQQIIQQQQIi")
_SOFTWARE, _CPU_CLOCK, _SAMPLED = 1, 0, 1 | 4 | 16
_FLAGS = 1 << 5 | 1 << 6 | 1 << 14 | 1 << 25
_CLOSE_ON_EXEC = 8
#: The places of head and tail in the ring's first page, in words.
_HEAD, _TAIL = 128, 129
_LOST, _SAMPLE = 2, 9
#: Bytes of the kernel's ring: five seconds of a busy thread.
_SIZE = mmap.PAGESIZE
#: The time of a sample (ns, monotonic) and its address, or IN_KERNEL, or LOST if the ring was full.
NativeSample = tuple[int, int]
IN_KERNEL, LOST = 1 << 64, -1
#: Up to this level users may sample their own processes: the kernel's default. Debian and Ubuntu have a higher one.
_ALLOWS = 2
_PARANOID = "/proc/sys/kernel/perf_event_paranoid"
_libc = ctypes.CDLL(None, use_errno=True)


class ThreadClock:
    """Samples the code address of a thread 23 times per second of its CPU time, until ``close``."""

    def __init__(self, tid: int) -> None:
        """Raises OSError if the kernel does not allow it, or the thread is gone."""
        attributes = _ATTRIBUTES.pack(
            _SOFTWARE, _ATTRIBUTES.size, _CPU_CLOCK, PERIOD_NS, _SAMPLED, 0, _FLAGS, _SIZE, 0, 0, 0, 0, 0, 0,
            time.CLOCK_MONOTONIC,
        )  # fmt: skip
        self.fd = _libc.syscall(_SYSCALL, attributes, tid, -1, -1, ctypes.c_ulong(_CLOSE_ON_EXEC))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            self._ring = mmap.mmap(self.fd, mmap.PAGESIZE + _SIZE)
        except OSError:
            os.close(self.fd)
            raise
        self._words = memoryview(self._ring).cast("Q")
        self._read_ns, self._count = time.monotonic_ns(), 0  # up to the latest sample

    def close(self) -> None:
        self._words.release()
        self._ring.close()
        os.close(self.fd)

    def read(self) -> list[NativeSample]:
        """The samples since the last call, in order.

        The kernel takes none while it runs on behalf of the thread. But each sample has the CPU time that the thread
        has used, so the samples that are missing were in the kernel; they are placed evenly between the others.
        """
        words, now_ns = self._words, time.monotonic_ns()
        cpu_ns = int.from_bytes(os.read(self.fd, 8), sys.byteorder)
        begin, length, samples, head = mmap.PAGESIZE // 8, _SIZE // 8, list[NativeSample](), words[_HEAD]
        at, end = words[_TAIL] // 8, head // 8
        while at < end:
            header, address, when_ns, used_ns = (words[begin + (at + word) % length] for word in range(4))
            kind = header & 0xFFFFFFFF
            if kind == _SAMPLE:
                samples += self._in_kernel(when_ns, used_ns - PERIOD_NS)
                samples.append((when_ns, address))
                self._count += 1
            elif kind == _LOST:  # the second word counts them
                samples += [(self._read_ns, LOST)] * when_ns
                self._count += when_ns
            at += max(1, header >> 51)  # its size is in the upper 16 bits, in bytes
        words[_TAIL] = head
        return samples + self._in_kernel(now_ns, cpu_ns)

    def _in_kernel(self, until_ns: int, cpu_ns: int) -> list[NativeSample]:
        """The samples that are missing until a moment, by the thread's CPU time."""
        missing, since_ns = max(0, cpu_ns // PERIOD_NS - self._count), self._read_ns
        self._count, self._read_ns = self._count + missing, until_ns
        spacing_ns = (until_ns - since_ns) // (missing + 1)
        return [(since_ns + spacing_ns * (number + 1), IN_KERNEL) for number in range(missing)]


def why_refused() -> tuple[str, str] | None:
    """The reason why the kernel refuses samples of the user's own processes, and the remedy; None if it allows them."""
    try:
        ThreadClock(0).close()
    except PermissionError:
        level = procfs.read_text(_PARANOID).strip()
        if level.isdigit() and int(level) > _ALLOWS:
            return f"kernel.perf_event_paranoid is {level}", (
                f"Allow it until the next boot: sudo sysctl kernel.perf_event_paranoid={_ALLOWS} (each user may then"
                " sample processes of their own, in user code only)"
            )
        return "the container forbids perf events", (
            "Start the container with --cap-add PERFMON, or with a seccomp profile that allows perf_event_open"
        )
    except OSError as error:
        if error.errno not in procfs.SHORTAGES:
            return "this kernel has no perf events", "Run it on Linux, with CONFIG_PERF_EVENTS"
    return None


class SampledProcess:
    """A process whose threads are sampled: its mapped libraries, its phases, samples whose phase is not known yet."""

    def __init__(self, pid: int, phases: deque[TimedPhase]) -> None:
        """``phases``: those in which samples may still lie, if it trains."""
        self._pid, self._phases = pid, phases
        self._mapped: list[tuple[int, int, str]] = []  # begin, end and library of each part that can be executed
        self._waiting: list[tuple[int, int, str]] = []  # when, thread and library of samples without a phase yet

    def add_samples(self, tid: int, samples: Sequence[NativeSample]) -> None:
        """Add samples of a thread; if one lies in no mapped file, the mappings are read again."""
        is_new = any(self.library_at(address) == UNKNOWN_LIBRARY for _, address in samples)
        if is_new and (maps := procfs.read_maps(self._pid)):  # none of one that has ended
            self.map(maps)
        self._waiting += [(when_ns, tid, self.library_at(address)) for when_ns, address in samples]

    def library_at(self, address: int) -> str:
        """The name of the library that contains an address."""
        if address == IN_KERNEL:
            return KERNEL
        at = bisect_right(self._mapped, (address, math.inf)) - 1
        return self._mapped[at][2] if at >= 0 and address < self._mapped[at][1] else UNKNOWN_LIBRARY

    def map(self, maps: bytes) -> None:
        """Replace the mapped files by those in ``maps``, the content of /proc/PID/maps."""
        made_by_numba = b"libllvmlite" in maps
        self._mapped.clear()
        for line in maps.splitlines():
            addresses, rights, _, _, _, *path = line.split(maxsplit=5)
            if b"x" in rights:
                begin, end = (int(address, 16) for address in addresses.split(b"-"))
                name = library_of(b"".join(path).decode("utf-8", "replace").removesuffix(" (deleted)"))
                self._mapped.append((begin, end, NUMBA if made_by_numba and name == GENERATED else name))

    def take_code(self, late_ns: int) -> Counter[tuple[int, str, str]]:
        """Return and clear samples whose phase is known, and all before ``late_ns``, by thread, library and phase."""
        code, taken, self._waiting = Counter[tuple[int, str, str]](), sorted(self._waiting), []
        for when_ns, tid, library in taken:
            begin_ns, end_ns, phase = self._phase_at(when_ns)
            if when_ns > max(end_ns, late_ns):
                self._waiting.append((when_ns, tid, library))
            else:
                code[tid, library, phase if begin_ns <= when_ns <= end_ns else ""] += 1
        self._phase_at(late_ns)
        return code

    def _phase_at(self, when_ns: int) -> TimedPhase:
        """The phase at a moment, or the next or the latest; those before it are dropped."""
        while len(self._phases) > 1 and self._phases[0][1] < when_ns:
            self._phases.popleft()
        return self._phases[0] if self._phases else (when_ns, when_ns, "")


class NativeSource(Source):
    """Samples the busiest threads of all processes of the run; ends, with a notice, if that is not allowed."""

    name = "native"
    period_s = 2.0

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._clocks: dict[tuple[int, int], ThreadClock] = {}  # by process and thread
        self._processes: dict[int, SampledProcess] = {}
        self._read_s: float | None = None  # the last time

    def read(self) -> Iterable[Record]:
        """The libraries that each process has run up to 10 s ago; the phases of later samples are not known yet."""
        now_s, roles = time.monotonic(), self._table.roles
        if self._read_s is None and (denied := why_refused()) is not None:
            message = f"{denied[0]}: what runs below Python is not measured (see tuimon doctor)"
            yield Notice(t=now_s, pid=0, source=self.name, level="info", message=message)
            raise Done
        for (pid, tid), clock in self._clocks.items():
            self._processes[pid].add_samples(tid, clock.read())
        for pid, process in [*self._processes.items()]:
            has_ended = pid not in roles
            # phases are known some time after their samples
            code = process.take_code(int(now_s * 1e9) - (0 if has_ended else 10_000_000_000))
            if code:
                listed = [NativeCode(*key, count) for key, count in code.most_common()]
                window_s = round(now_s - (self._read_s or 0.0), 3)
                yield Native(t=round(now_s, 3), pid=pid, window_s=window_s, code=listed)
            if has_ended:
                del self._processes[pid], self._table.phases[pid]
        self._sample(self._busiest())
        self._read_s = now_s

    def close(self) -> None:
        """End all sampling."""
        self._sample(frozenset())

    def _busiest(self) -> set[tuple[int, int]]:
        """The threads to sample: the busiest of each process, then the second of each, and so on up to the limit."""
        found = []
        for pid, rows in self._table.running.copy().items():
            busy = [row for row in rows if row.count == 1 and (row.cpu_ratio or 0.0) >= TINY]
            busy.sort(key=lambda row: row.cpu_ratio or 0.0, reverse=True)
            if self._table.roles.get(pid, "other") != "other":
                found += [(order, pid, row.tid) for order, row in enumerate(busy)]
        return {(pid, tid) for _, pid, tid in sorted(found)[:64]}  # reading a busy one costs 0.02 % of a core

    def _sample(self, threads: Set[tuple[int, int]]) -> None:
        """Sample these threads from now on, and no others."""
        for ended in self._clocks.keys() - threads:
            self._clocks.pop(ended).close()
        for pid, tid in threads - self._clocks.keys():
            if pid not in self._processes:
                phases = self._table.phases[pid] = deque[TimedPhase](maxlen=_PHASES)
                self._processes[pid] = SampledProcess(pid, phases)
            with suppress(OSError):  # the thread has ended, or there are no handles left
                self._clocks[pid, tid] = ThreadClock(tid)
