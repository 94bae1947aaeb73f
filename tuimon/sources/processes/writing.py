"""Bytes that a training process writes, and the kind of file system that it writes them to."""

from __future__ import annotations

import os
import stat
import time

from msgspec import Struct

from tuimon.proc.procfs import read_bytes, read_whole

#: Bytes of one reading from which the file is searched for: logs write less, checkpoints more.
_MUCH_BYTES = 4 << 20
#: A file that was written longer ago is not the one, in seconds.
_LATELY_S = 3.0
#: In the names of our own files, which a training writes all the time.
_RING = "/tuimon-"
#: Files of a process that are looked at.
_FILES = 1024


class Writing(Struct):
    """Follows what one process hands to the kernel to write (proc_pid_io(5): wchar)."""

    pid: int
    before_bytes: int | None = None

    def read(self) -> tuple[int | None, str]:
        """Bytes since the last call, None at the first; and the file system, as in ``mount``, if a file is open."""
        fields = (line.partition(b": ") for line in (read_bytes(f"/proc/{self.pid}/io", 512) or b"").splitlines())
        total = next((int(number) for name, _, number in fields if name == b"wchar"), None)
        before, self.before_bytes = self.before_bytes, total
        if total is None or before is None:
            return None, ""
        written = total - before
        return written, _file_system(self.pid, written) if written >= _MUCH_BYTES else ""


def _file_system(pid: int, written_bytes: int) -> str:
    """The type of the file system of the largest file just written that may be most of these bytes, or empty."""
    found: list[tuple[int, str]] = []
    try:
        names = os.listdir(f"/proc/{pid}/fd")[:_FILES]
    except OSError:
        return ""
    for name in names:
        try:
            file = os.stat(f"/proc/{pid}/fd/{name}")
            is_ours = _RING in os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        is_written = stat.S_ISREG(file.st_mode) and time.time() - file.st_mtime < _LATELY_S and not is_ours
        if is_written and 2 * file.st_size >= written_bytes:
            found.append((file.st_size, name))
    for _, name in sorted(found, reverse=True):
        facts = dict(line.split(b":", 1) for line in (read_bytes(f"/proc/{pid}/fdinfo/{name}") or b"").splitlines())
        if int(facts.get(b"flags", b"0"), 8) & os.O_ACCMODE != os.O_RDONLY:
            return _type_of(pid, facts.get(b"mnt_id", b"").strip())
    return ""


def _type_of(pid: int, mount: bytes) -> str:
    """``nfs4`` of the mount with this id (proc_pid_mountinfo(5))."""
    for line in read_whole(f"/proc/{pid}/mountinfo").splitlines():
        head, _, tail = line.partition(b" - ")
        if head.split(b" ", 1)[0] == mount:
            return tail.split(b" ", 1)[0].decode("ascii", "replace")[:40]
    return ""
