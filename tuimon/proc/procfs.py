"""Small readers of /proc. Whatever vanishes between two reads is None, never an exception.

Formats: proc_pid_stat(5), proc_pid_cmdline(5), Documentation/scheduler/sched-stats.rst in the Linux sources.
"""

from __future__ import annotations

import os
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_COMMAND_CHARS = 2000
_ENVIRON_BYTES = 256 * 1024


class Stat(NamedTuple):
    """The fields we need of /proc/PID/stat or /proc/PID/task/TID/stat."""

    comm: str
    state: str  # one letter: R S D T t Z X I
    ppid: int
    cpu_ticks: int  # user and system time
    start_ticks: int  # since boot
    rss_bytes: int


class SchedStat(NamedTuple):
    """/proc/PID/task/TID/schedstat: nanoseconds on a core, and runnable but waiting for one."""

    cpu_ns: int
    delay_ns: int
    slices: int


def read_bytes(path: str, limit: int = 65536) -> bytes | None:
    """The start of a small file; None when it cannot be read. Costs about 6 us, half of what ``open()`` does."""
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


def parse_stat(raw: bytes) -> Stat | None:
    """Parse one line of stat. The name may hold spaces, parentheses and newlines: the last ")" ends it."""
    head, found, tail = raw.rpartition(b")")
    if not found:
        return None
    fields = tail.split()
    try:
        return Stat(
            comm=head.partition(b"(")[2].decode("utf-8", "replace"),
            state=fields[0].decode("ascii", "replace"),
            ppid=int(fields[1]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            start_ticks=int(fields[19]),
            rss_bytes=int(fields[21]) * PAGE_BYTES,
        )
    except (IndexError, ValueError):
        return None


def read_stat(pid: int) -> Stat | None:
    """The process as a whole; None when it is gone."""
    raw = read_bytes(f"/proc/{pid}/stat")
    return parse_stat(raw) if raw else None


def read_thread_stat(pid: int, tid: int) -> Stat | None:
    """One thread; ``comm`` is the thread's own name."""
    raw = read_bytes(f"/proc/{pid}/task/{tid}/stat")
    return parse_stat(raw) if raw else None


def start_ticks(pid: int) -> int | None:
    """Start time in clock ticks since boot; None when there is no such process."""
    stat = read_stat(pid)
    return None if stat is None else stat.start_ticks


def parse_schedstat(raw: bytes) -> SchedStat | None:
    """Parse ``cpu delay slices``; None on kernels built without the counters."""
    try:
        cpu_ns, delay_ns, slices = map(int, raw.split())
    except ValueError:
        return None
    return SchedStat(cpu_ns, delay_ns, slices)


def read_schedstat(pid: int, tid: int) -> SchedStat | None:
    """What the scheduler counted for one thread."""
    raw = read_bytes(f"/proc/{pid}/task/{tid}/schedstat", 128)
    return parse_schedstat(raw) if raw else None


def thread_ids(pid: int) -> list[int]:
    """OS ids of a process's threads, lowest first; empty when it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []


def children(pid: int, tid: int) -> list[int]:
    """The processes that one thread started (needs CONFIG_PROC_CHILDREN, which distributions set)."""
    raw = read_bytes(f"/proc/{pid}/task/{tid}/children", 1 << 20)
    return [int(word) for word in raw.split()] if raw else []


def parse_command(raw: bytes) -> list[str]:
    """The arguments of a command line, shortened to 2,000 characters in all.

    A program that renamed itself (setproctitle) leaves one string padded with NULs.
    """
    out: list[str] = []
    room = _COMMAND_CHARS
    for word in raw.rstrip(b"\0").split(b"\0"):
        text = word.decode("utf-8", "replace")
        out.append(text[:room])
        room -= len(text)
        if room <= 0:
            break
    return out if out != [""] else []


def read_command(pid: int) -> list[str]:
    """The command line; empty for kernel threads, zombies and what is gone."""
    return parse_command(read_bytes(f"/proc/{pid}/cmdline", 4 * _COMMAND_CHARS) or b"")


def parse_environ(raw: bytes) -> dict[str, str]:
    """The environment a process was started with."""
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if b"=" in entry)
    return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, _, value in pairs}


def read_environ(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty when it may not be read."""
    return parse_environ(read_bytes(f"/proc/{pid}/environ", _ENVIRON_BYTES) or b"")


def executable(pid: int) -> str:
    """Base name of the program a process runs; "" when it may not be known."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)"))
    except OSError:
        return ""


def boot_unix_s() -> float:
    """When the machine started, seconds since the epoch."""
    raw = read_bytes("/proc/stat", 1 << 20) or b""
    for line in raw.splitlines():
        if line.startswith(b"btime "):
            return float(line.split()[1])
    return 0.0
