"""How much a process reads and writes: one that waits for slow storage is not stuck."""

from __future__ import annotations

from msgspec import Struct

from tuimon.proc import procfs

#: Bytes a second from which a process moves: our choice, above what logs, heartbeats and our own sampling thread write
#: (10 kB/s), and below any storage that still answers.
MOVING_BYTES_PER_S = 32 * 1024


class Reading(Struct, frozen=True, gc=False):
    """What a process had read and written at a moment, in bytes."""

    t: float
    by_calls: int  # bytes that went through system calls
    by_disk: int  # bytes that went to or came from a disk


def read_io(pid: int, now_s: float) -> Reading | None:
    """The counters of /proc/PID/io (proc_pid_io(5)); None where they may not be read."""
    raw = procfs.read_bytes(f"/proc/{pid}/io", 512)
    if raw is None:
        return None
    try:
        fields = {name: int(value) for name, _, value in (line.partition(b":") for line in raw.splitlines())}
        by_calls = fields[b"rchar"] + fields[b"wchar"]
        by_disk = fields[b"read_bytes"] + fields[b"write_bytes"]
    except (ValueError, KeyError):
        return None
    return Reading(now_s, by_calls, by_disk)


def bytes_per_s(before: Reading | None, after: Reading | None) -> float | None:
    """Between two readings; None where either is not known.

    What goes through system calls and what goes to the disk overlap, and each has what the other lacks (the page cache,
    mapped files): the greater of the two counts.
    """
    if before is None or after is None or after.t <= before.t:
        return None
    moved = max(after.by_calls - before.by_calls, after.by_disk - before.by_disk)
    return max(0.0, moved / (after.t - before.t))
