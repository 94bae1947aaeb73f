"""Readers of /proc, quick enough for every thread once a second.

Anything that vanishes between two reads is None, never an exception. Formats: proc_pid_stat(5), Documentation/
scheduler/sched-stats.rst in the Linux sources.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import product
from typing import NamedTuple

from msgspec import Struct

from tuimon.agent.ring import files

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: Errors that concern our own process, not the file that it reads.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
#: Far more than the map of a training, which has some 1,000 lines, or than any command line or environment.
_WHOLE_BYTES = 8 << 20


class Stat(Struct, frozen=True, gc=False):
    """A process or a thread, from its stat file."""

    name: str  # of a process: its main thread's
    state: str  # one letter, R S D T t Z X I; of a process: its main thread's
    ppid: int
    cpu_ticks: int  # user and system time; of a process: of all its threads
    children_cpu_ticks: int  # the same of ended children that the process has waited for, and of their children
    threads: int  # of the process
    start_ticks: int  # since boot
    rss_bytes: int  # resident memory of the process
    minor_faults: int = 0  # pages that the kernel gave it; of a process: all its threads
    major_faults: int = 0  # pages that it had to wait for a disk for
    core: int | None = None  # the core that it runs on, or ran on last

    @property
    def cpu_s(self) -> float:
        """CPU time in s, in steps of 10 ms."""
        return self.cpu_ticks / TICKS_PER_S

    @property
    def children_cpu_s(self) -> float:
        """CPU time of ended children in s, in steps of 10 ms."""
        return self.children_cpu_ticks / TICKS_PER_S


class SchedStat(Struct, frozen=True, gc=False):
    """/proc/PID/task/TID/schedstat: ns on a core, and ns runnable but waiting for one."""

    cpu_ns: int
    delay_ns: int


def read_bytes(path: str, limit: int = 65536) -> bytes | None:
    """The start of a small file; None if it cannot be read. Takes about 6 us, half of what ``open()`` takes."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(handle, limit)
    except OSError:
        return None
    finally:
        os.close(handle)


def read_text(path: str) -> str:
    """A small file of the kernel; empty if it cannot be read."""
    return (read_bytes(path) or b"").decode("ascii", "replace")


def read_fields(path: str) -> dict[str, str]:
    """The fields of a file with lines ``Name: value``, such as /proc/PID/status; empty if it cannot be read."""
    lines = (line.partition(":") for line in read_text(path).splitlines())
    return {name: value.strip() for name, found, value in lines if found}


def user_ids(pid: int) -> list[int]:
    """The real and the effective user id of a process; empty when it is gone."""
    return [int(uid) for uid in read_fields(f"/proc/{pid}/status").get("Uid", "").split()[:2]]


def nvidia_driver(root: str = "/") -> str | None:
    """Version of NVIDIA's kernel module, such as ``550.54.15``; None if there is none, or if a container hides it."""
    found = re.search(r"Module .*?(\d+(?:\.\d+)+)", read_text(os.path.join(root, "proc/driver/nvidia/version")))
    return found[1] if found is not None else None


def read_whole(path: str) -> bytes:
    """All of a file, which the kernel may deliver a page at a time; empty if it cannot be read.

    Raises OSError when we have no file handle or memory left.
    """
    try:
        with open(path, "rb") as file:
            return file.read(_WHOLE_BYTES)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return b""


def pids() -> list[int]:
    """The processes of this machine; empty if /proc cannot be read."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def start_ticks(pid: int) -> int | None:
    """Start time in clock ticks since boot, as in a ring's name; None if there is no such process.

    Raises OSError if we have no file handle or memory left: the process may still exist.
    """
    try:
        return files.start_ticks(pid)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return None
    except (IndexError, ValueError):
        return None


def parse_stat(raw: bytes | None) -> Stat | None:
    """Parse one line of stat. The name may hold spaces, parentheses and newlines: the last ")" ends it."""
    head, _, tail = (raw or b"").rpartition(b")")
    fields = tail.split()
    try:
        return Stat(
            name=head.partition(b"(")[2].decode("utf-8", "replace"),
            state=fields[0].decode("ascii", "replace"),
            ppid=int(fields[1]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            children_cpu_ticks=int(fields[13]) + int(fields[14]),
            threads=int(fields[17]),
            start_ticks=int(fields[19]),
            rss_bytes=int(fields[21]) * PAGE_BYTES,
            minor_faults=int(fields[7]),
            major_faults=int(fields[9]),
            core=int(fields[36]) if len(fields) > 36 else None,
        )
    except (IndexError, ValueError):
        return None


class HeldFile:
    """A file of /proc that is read again and again: held open, a read of stat takes 11 us in place of 27."""

    #: Most files held open; each read of a further one opens it again, as do reads when no descriptor is left.
    MOST = 128
    _held = 0  # held now

    __slots__ = ("_handle", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def read(self, limit: int = 4096) -> bytes | None:
        """The start of the file; None if it cannot be read."""
        if self._handle < 0:
            if HeldFile._held >= self.MOST:
                return read_bytes(self._path, limit)
            try:
                self._handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return read_bytes(self._path, limit)
            HeldFile._held += 1
        try:
            return os.pread(self._handle, limit, 0)
        except OSError:  # its process has ended
            return None

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            HeldFile._held -= 1


def read_process_stat(pid: int) -> Stat | None:
    return parse_stat(read_bytes(f"/proc/{pid}/stat"))


def own_bytes(pid: int) -> int | None:
    """A process's own resident memory, without pages of files and shared memory; None when it is gone.

    From /proc/PID/statm, in about 7 us; for smaps the kernel would walk all pages.
    """
    fields = (read_bytes(f"/proc/{pid}/statm", 256) or b"").split()
    try:
        return max(0, int(fields[1]) - int(fields[2])) * PAGE_BYTES
    except (IndexError, ValueError):
        return None


def open_files(pid: int) -> tuple[int, int] | None:
    """The number of descriptors that a process has open, and its limit; None if they may not be read.

    Takes about 30 us: since Linux 6.2 their number is the size of their folder.
    """
    try:
        number = os.stat(f"/proc/{pid}/fd").st_size or len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    limit = limit_of(pid, "Max open files")
    return (number, limit) if limit is not None else None


def limit_of(pid: int, what: str) -> int | None:
    """The soft limit of a process, by its name in /proc/PID/limits; None if there is none."""
    number = (read_bytes(f"/proc/{pid}/limits") or b"").partition(what.encode())[2].split(maxsplit=1)[:1]
    return int(number[0]) if number and number[0].isdigit() else None


class ProcessIo(NamedTuple):
    """Bytes that a process and its ended children have moved: proc_pid_io(5)."""

    by_calls: int  # read and written by system calls
    by_disk: int  # read from and written to a disk
    written: int  # written by system calls


def read_signals(pid: int, field: str, tid: int | None = None) -> frozenset[int]:
    """The signals in a field of a thread's status, such as ``SigIgn`` (ignored) or ``ShdPnd`` (pending)."""
    bits = int(read_fields(f"/proc/{pid}/task/{tid or pid}/status").get(field, "0"), 16)
    return frozenset(number for number in range(1, 65) if bits >> number - 1 & 1)


def read_io(pid: int) -> ProcessIo | None:
    """The I/O counters of a process; None if they may not be read."""
    try:
        fields = {name: int(value) for name, value in read_fields(f"/proc/{pid}/io").items()}
        written = fields["wchar"]
        return ProcessIo(fields["rchar"] + written, fields["read_bytes"] + fields["write_bytes"], written)
    except (ValueError, KeyError):
        return None


def private_bytes(pid: int) -> int | None:
    """Memory that a process has written and shares with no other process, such as the one it was forked from.

    None if it is gone or may not be read. The kernel walks all pages: 0.1 ms per 10 MB, a third of what smaps takes.
    """
    size = read_fields(f"/proc/{pid}/smaps_rollup").get("Private_Dirty")
    return int(size.split()[0]) << 10 if size is not None else None


def read_thread_stat(pid: int, tid: int) -> Stat | None:
    return parse_stat(read_bytes(f"/proc/{pid}/task/{tid}/stat"))


def read_schedstat(pid: int, tid: int) -> SchedStat | None:
    """The scheduler's counts for a thread; None on kernels without them."""
    try:
        cpu_ns, delay_ns, _ = map(int, (read_bytes(f"/proc/{pid}/task/{tid}/schedstat", 128) or b"").split())
    except ValueError:
        return None
    return SchedStat(cpu_ns, delay_ns)


def waited_s(pid: int, tid: int | None = None) -> float:
    """Seconds for which a thread, the main one by default, could have run but had no core; 0.0 if that is not known.

    Time limits that leave them out are as long on a busy machine as on another.
    """
    counts = read_schedstat(pid, tid or pid)
    return counts.delay_ns / 1e9 if counts is not None else 0.0


def thread_ids(pid: int) -> list[int]:
    """OS ids of a process's threads, lowest first; empty when it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []


def read_maps(pid: int) -> bytes:
    """The files that a process has mapped; empty if they may not be read. Takes 0.5 ms with torch loaded."""
    try:
        return read_whole(f"/proc/{pid}/maps")
    except OSError:
        return b""


#: Offsets of ``tid`` in ``struct pthread``: glibc on x86-64, on aarch64, musl (nptl/descr.h, internal/pthread_impl.h).
_OFFSETS = (720, 208, 48)
#: PID_MAX_LIMIT (linux/threads.h); anything above is an address.
_LARGEST_TID = 1 << 22


def os_ids(pid: int, idents: Iterable[int]) -> dict[int, int]:
    """OS ids by pthread id, without ids that already are OS ids or cannot be resolved. 3 us each; never raises.

    Pythons before 3.11 keep only the pthread id, which is the address of the thread's descriptor in the C library. The
    tid lies in it at an offset that is the same in all C libraries of these Pythons. A number read there counts only if
    it is one of the process's threads.
    """
    unknown = [thread_id for thread_id in idents if thread_id > _LARGEST_TID]
    if not unknown:
        return {}
    tids = set(thread_ids(pid))
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        resolved: dict[int, int] = {}
        for descriptor, offset in product(unknown, _OFFSETS):
            with suppress(OSError, OverflowError):  # the thread is gone, or the id is not an address
                tid = int.from_bytes(os.pread(memory, 4, descriptor + offset), "little")
                if tid in tids:
                    resolved.setdefault(descriptor, tid)
    finally:
        os.close(memory)
    return resolved if len(set(resolved.values())) == len(resolved) else {}
