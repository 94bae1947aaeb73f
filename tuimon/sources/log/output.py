"""The output file of a launched run: followed, searched for tracebacks, kept from filling the disk."""

from __future__ import annotations

import contextlib
import os
import re

from tuimon.text import plain

#: How much of a run's output is kept; older output is freed on the disk.
KEEP_BYTES = 64 * 1024 * 1024
#: How much of the end is searched for the last traceback.
TRACEBACK_BYTES = 64 * 1024

#: Begins a traceback.
TRACEBACK = "Traceback (most recent call last)"

_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, linux/falloc.h
_PUNCH_BYTES = 1024 * 1024  # output is freed in units of this size
# The line that ends a traceback: an exception's name at the margin, with or without a message.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z_a-z]\w*(?::(?: .*)?)?$")


class OutputTail:
    """Follows one growing file. A missing file is an empty one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.skipped_bytes = 0  # never shown, as more was written than could be read
        self._offset = 0
        self._punched = 0
        self._can_punch = True

    def read(self, max_bytes: int = 65536) -> bytes:
        """The output since the last call: at most the newest ``max_bytes``; the rest counts as skipped."""
        size = self._size()
        if size < self._offset:  # truncated: begin again
            self._offset = 0
        if size == self._offset:
            return b""
        if size - self._offset > max_bytes:
            self.skipped_bytes += size - max_bytes - self._offset
            self._offset = size - max_bytes
        data = self._read_at(self._offset, max_bytes)
        self._offset += len(data)
        return data

    def last_traceback_line(self) -> str | None:
        """The last line of the last Python traceback near the end, without control characters."""
        size = self._size()
        start = max(size - TRACEBACK_BYTES, 0)
        return last_traceback_line(self._read_at(start, size - start))

    def trim(self, keep_bytes: int = KEEP_BYTES) -> None:
        """Free all but the newest ``keep_bytes`` on the disk; offsets stay valid.

        Does nothing where the file system does not support that.
        """
        end = (self._size() - keep_bytes) // _PUNCH_BYTES * _PUNCH_BYTES
        if not self._can_punch or end <= self._punched:
            return
        with contextlib.suppress(OSError):
            self._can_punch = _punch_hole(self.path, self._punched, end - self._punched)
            self._punched = end

    def _size(self) -> int:
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def _read_at(self, offset: int, length: int) -> bytes:
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(offset)
                return file.read(length) or b""
        except OSError:
            return b""


def last_traceback_line(output: bytes) -> str | None:
    """The line with the exception of the last traceback in ``output``; None without one."""
    lines = output.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    begins = [number for number, line in enumerate(lines) if TRACEBACK in line]
    if not begins:
        return None
    for line in lines[begins[-1] + 1 :]:
        text = plain(line).rstrip()
        # Frames are indented, and exception groups draw a tree before them.
        if text and not text.startswith((" ", "|", "+")) and _EXCEPTION.match(text):
            return text[:500]
    return None


def _punch_hole(path: str, offset: int, length: int) -> bool:
    import ctypes  # noqa: PLC0415  (few runs print or log so much; 0.5 MB)

    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        return False
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return bool(fallocate(file, _PUNCH_HOLE_KEEP_SIZE, offset, length) == 0)
    finally:
        os.close(file)
