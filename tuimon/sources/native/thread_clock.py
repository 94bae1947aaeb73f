"""Samples of one thread's CPU time, by perf_event_open(2): the kernel's ring, read without stopping the thread."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
import sys
import time

from tuimon.proc import procfs

#: perf_event_open(2), by machine.
_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}.get(platform.machine())
#: Samples a second of CPU time. One takes 13 to 43 us from a training on a virtual machine (measured): 0.1 % at most.
RATE_HZ = 23
PERIOD_NS = 1_000_000_000 // RATE_HZ
#: struct perf_event_attr up to ``clockid``. PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_IP |
#: PERF_SAMPLE_TIME; flags exclude_kernel, exclude_hv, watermark (nobody waits for it), use_clockid.
_ATTRIBUTES = struct.Struct("<IIQQQQQIIQQQQIi")
_SOFTWARE, _CPU_CLOCK, _IP_AND_TIME = 1, 0, 1 | 4
_FLAGS = 1 << 5 | 1 << 6 | 1 << 14 | 1 << 25
_CLOSE_ON_EXEC = 8
#: The places of head and tail in the ring's first page, in words.
_HEAD, _TAIL = 128, 129
_LOST, _SAMPLE = 2, 9
#: Bytes of the kernel's ring: seven seconds of a busy thread.
_SIZE = mmap.PAGESIZE
#: Up to this level users may sample their own processes; it is the kernel's default, Debian and Ubuntu have a higher.
_ALLOWS = 2
_PARANOID = "/proc/sys/kernel/perf_event_paranoid"
_libc = ctypes.CDLL(None, use_errno=True)


class ThreadClock:
    """Samples where a thread is in user code, 23 times in each second that it runs, until ``close``."""

    def __init__(self, tid: int) -> None:
        """Raises OSError where the kernel does not allow it, or the thread is gone."""
        if _SYSCALL is None:
            raise OSError(38, os.strerror(38))
        attributes = _ATTRIBUTES.pack(
            _SOFTWARE, _ATTRIBUTES.size, _CPU_CLOCK, PERIOD_NS, _IP_AND_TIME, 0, _FLAGS, _SIZE, 0, 0, 0, 0, 0, 0,
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

    def close(self) -> None:
        """End it."""
        self._words.release()
        self._ring.close()
        os.close(self.fd)

    def cpu_ns(self) -> int:
        """CPU time of the thread since the beginning, in the kernel, too."""
        return int.from_bytes(os.read(self.fd, 8), sys.byteorder)

    def read(self) -> tuple[list[tuple[int, int]], int]:
        """The samples since the last call, each a moment (ns, monotonic) and an address; and how many were lost."""
        words, at, head = self._words, self._words[_TAIL], self._words[_HEAD]
        begin, length, samples, lost = mmap.PAGESIZE // 8, _SIZE // 8, list[tuple[int, int]](), 0
        at, end = at // 8, head // 8
        while at < end:
            header, address, when = (words[begin + (at + word) % length] for word in range(3))
            kind = header & 0xFFFFFFFF
            if kind == _SAMPLE:
                samples.append((when, address))
            elif kind == _LOST:
                lost += when
            at += max(1, header >> 51)  # its size is in the upper 16 bits, in bytes
        words[_TAIL] = head
        return samples, lost


def why_none() -> tuple[str, str] | None:
    """Why the kernel refuses samples of one's own processes, and what allows them; None if it does not refuse."""
    try:
        ThreadClock(0).close()
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            return "this kernel has no perf events", "Run it on Linux, with CONFIG_PERF_EVENTS"
        level = (procfs.read_bytes(_PARANOID, 16) or b"").decode("ascii", "replace").strip()
        if level.isdigit() and int(level) > _ALLOWS:
            return f"kernel.perf_event_paranoid is {level}", (
                f"Allow it until the next boot: sudo sysctl kernel.perf_event_paranoid={_ALLOWS} (each user may then"
                " sample processes of their own, in user code only)"
            )
        return "the container forbids perf events", (
            "Start the container with --cap-add PERFMON, or with a seccomp profile that allows perf_event_open"
        )
    return None
