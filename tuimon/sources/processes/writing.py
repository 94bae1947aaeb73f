"""Bytes that a training process writes, and the kind of file system that it writes them to."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from msgspec import Struct

from tuimon.proc.mounts import open_files
from tuimon.proc.procfs import read_io

#: Bytes of one reading from which the file is searched for: logs write less, checkpoints more.
_MUCH_BYTES = 4 << 20
#: A file that was written longer ago is not the one, in seconds.
_LATELY_S = 3.0
#: In the names of our own files, which a training writes all the time.
_RING = "/tuimon-"


class Writing(Struct):
    """Follows what one process hands to the kernel to write (proc_pid_io(5): wchar)."""

    pid: int
    before_bytes: int | None = None

    def read(self) -> tuple[int | None, str]:
        """Bytes since the last call, None at the first; and the file system, as in ``mount``, if a file is open."""
        io = read_io(self.pid)
        total = io.written if io is not None else None
        before, self.before_bytes = self.before_bytes, total
        if total is None or before is None:
            return None, ""
        written = total - before
        return written, _file_system(self.pid, written) if written >= _MUCH_BYTES else ""


def _file_system(pid: int, written_bytes: int) -> str:
    """The type of the file system of the largest file just written that may be most of these bytes, or empty."""
    found: list[tuple[int, str]] = []
    for each in open_files(pid):
        if not each.is_read_only and _RING not in each.path:
            with suppress(OSError):
                file = os.stat(each.link)
                if time.time() - file.st_mtime < _LATELY_S and 2 * file.st_size >= written_bytes:
                    found.append((file.st_size, each.mount.kind[:40]))
    return max(found, default=(0, ""))[1]
