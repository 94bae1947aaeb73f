"""The file systems that a process reads its data from.

Formats: proc_pid_mountinfo(5), proc_pid_fdinfo(5) in the Linux manual.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from tuimon.proc import procfs

#: File systems of the kernel's own, and in memory.
_NO_STORAGE = frozenset(
    {"proc", "sysfs", "tmpfs", "ramfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "hugetlbfs"}
)
#: Descriptors of a process that are inspected at most.
_MOST = 256
_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """Where a file system is mounted, and its kind: ``/mnt/data`` and ``nfs4``."""

    point: str
    kind: str


def mounts_of(pid: int) -> list[Mount]:
    """The file systems that a process sees, the latest last; empty where they may not be read."""
    try:
        text = procfs.read_whole(f"/proc/{pid}/mountinfo").decode("utf-8", "replace")
    except OSError:
        return []
    return [mount for line in text.splitlines() if (mount := parse_mount(line)) is not None]


def parse_mount(line: str) -> Mount | None:
    """One line: ``36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw``."""
    own, _, source = line.partition(" - ")
    fields, kind = own.split(" "), source.partition(" ")[0]
    if len(fields) < 5 or not kind:
        return None
    return Mount(_OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4]), kind)


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The file system that holds a path; None of the kernel's own."""
    holding = [each for each in mounts if path == each.point or path.startswith(each.point.rstrip("/") + "/")]
    found = max(reversed(holding), key=lambda each: len(each.point), default=None)
    return found if found is not None and found.kind not in _NO_STORAGE else None


def files_read(pid: int) -> list[str]:
    """The files that a process has open and may read; those that it only writes, pipes and devices are left out."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")[:_MOST]
    except OSError:
        return []
    return [path for number in numbers if (path := _file(pid, number)) is not None]


def _file(pid: int, number: str) -> str | None:
    try:
        path = os.readlink(f"/proc/{pid}/fd/{number}")
    except OSError:
        return None
    if not path.startswith("/") or path.startswith(("/dev/", "/proc/", "/sys/")) or path.endswith(" (deleted)"):
        return None
    raw = procfs.read_bytes(f"/proc/{pid}/fdinfo/{number}", 256) or b""
    flags = raw.partition(b"flags:")[2].split(maxsplit=1)
    return path if flags and int(flags[0], 8) & os.O_ACCMODE == os.O_RDONLY else None
