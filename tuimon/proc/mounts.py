"""The files that a process has open, and the file systems that hold them.

Formats: proc_pid_mountinfo(5), proc_pid_fdinfo(5) in the Linux manual.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from tuimon.proc import procfs

#: Descriptors of a process that are inspected at most.
_MOST = 1024
_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """Where a file system is mounted, and its kind: ``/mnt/data`` and ``nfs4``."""

    point: str
    kind: str


class OpenFile(NamedTuple):
    """An open file, but for pipes, devices, the kernel's own files and those that have no name any more."""

    path: str
    link: str  # through which it can be reached
    is_read_only: bool
    mount: Mount


def open_files(pid: int) -> Iterator[OpenFile]:
    """The files that a process has open; none where they may not be read."""
    folder = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(folder)[:_MOST]
        mounts = _mounts_of(pid)
    except OSError:
        return
    for number in numbers:
        try:
            path = os.readlink(f"{folder}/{number}")
        except OSError:
            continue
        if path.startswith(("/dev/", "/proc/", "/sys/")) or path.endswith(" (deleted)"):
            continue
        raw = procfs.read_bytes(f"/proc/{pid}/fdinfo/{number}", 256) or b""
        facts = {key: value.strip() for key, _, value in (line.partition(b":") for line in raw.splitlines())}
        mount = mounts.get(facts.get(b"mnt_id", b"").decode("ascii", "replace"))
        if path.startswith("/") and mount is not None:
            is_read_only = int(facts.get(b"flags", b"0"), 8) & os.O_ACCMODE == os.O_RDONLY
            yield OpenFile(path, f"{folder}/{number}", is_read_only, mount)


def _mounts_of(pid: int) -> dict[str, Mount]:
    lines = procfs.read_whole(f"/proc/{pid}/mountinfo").decode("utf-8", "replace").splitlines()
    return {line.partition(" ")[0]: mount for line in lines if (mount := parse_mount(line)) is not None}


def parse_mount(line: str) -> Mount | None:
    """One line: ``36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw``."""
    own, _, source = line.partition(" - ")
    fields, kind = own.split(" "), source.partition(" ")[0]
    if len(fields) < 5 or not kind:
        return None
    return Mount(_OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4]), kind)
