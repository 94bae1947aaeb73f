"""One file of a log on the disk: appended to by whole batches, with room kept for the end of the run."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections import deque

#: Room kept beyond what is written: the end of a run fits there on a full disk. A last record with a line of its
#: output has 1 KB, the rest goes to the records that were held back.
RESERVE_BYTES = 64 * 1024
#: The room is reserved in pieces of this size, so that not every batch costs a call.
_RESERVE_STEP_BYTES = 64 * 1024
#: How many of the latest batches may be taken back.
_BATCHES = 64

_KEEP_SIZE = 0x01  # FALLOC_FL_KEEP_SIZE, linux/falloc.h
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class LogFile:
    """An open file that only grows. ``handle`` must be opened with O_APPEND; closed by ``close``."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.size = 0  # bytes of whole batches
        self.torn = False  # whether the file ends in a part of a batch that could not be taken back
        info = os.fstat(handle)
        self.identity = (info.st_dev, info.st_ino)
        self.regular = stat.S_ISREG(info.st_mode)  # no pipe or device
        self.reserves = self.regular  # whether its file system can reserve room
        self._reserved_to = 0
        self._batches: deque[tuple[int, int]] = deque(maxlen=_BATCHES)  # (end, records) of the latest batches

    def append(self, data: bytes, records: int, *, last: bool = False) -> None:
        """Append a batch, or nothing of it. ``last``: into the room that is kept for the end. Raises OSError."""
        if not last:
            self._reserve(len(data))
        written = 0
        try:
            while written < len(data):
                written += _write(self.handle, data[written:])
        except OSError:
            self.torn = written > 0 and not self._shrink(self.size)
            raise
        self.size += len(data)
        self.torn = False
        self._batches.append((self.size, records))

    def take_back(self, least_bytes: int) -> tuple[int, int]:
        """Cut off the latest batches, never the first: (bytes, records) of at least so many bytes, or fewer."""
        size, taken = self.size, 0
        while len(self._batches) > 1 and size - self._batches[-1][0] < least_bytes:
            taken += self._batches.pop()[1]
        kept = self._batches[-1][0] if self._batches else size
        if taken and not self._shrink(kept):
            return 0, 0
        self.size = kept
        return size - kept, taken

    def empty(self) -> None:
        """Drop what was in the file before. Raises OSError."""
        os.ftruncate(self.handle, 0)
        self.size = self._reserved_to = 0

    def close(self) -> None:
        """Close the file and give back the room that was kept."""
        if self.handle < 0:
            return
        if self._reserved_to > self.size and not self.torn:
            self._shrink(self.size)
        with contextlib.suppress(OSError):
            os.close(self.handle)
        self.handle = -1

    def _shrink(self, size: int) -> bool:
        try:
            os.ftruncate(self.handle, size)
        except OSError:
            return False
        self._reserved_to = 0
        return True

    def _reserve(self, more: int) -> None:
        """Keep room for ``more`` bytes and the end of the run. Raises OSError where there is none."""
        need = self.size + more + RESERVE_BYTES
        if not self.reserves or need <= self._reserved_to:
            return
        for end in (need + _RESERVE_STEP_BYTES, need):
            error = _allocate(self.handle, self.size, end - self.size)
            if not error:
                self._reserved_to = end
                return
        if error in _NO_ROOM:
            raise OSError(error, os.strerror(error))
        self.reserves = False


def _allocate(handle: int, start: int, length: int) -> int:
    """Reserve blocks beyond the end of a file; an errno, 0 when it worked."""
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        return errno.ENOSYS
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    while fallocate(handle, _KEEP_SIZE, start, length):
        error = ctypes.get_errno()
        if error != errno.EINTR:
            return error
    return 0


def _write(handle: int, data: bytes) -> int:
    """Write some of ``data``; returns how many bytes, at least one."""
    count = os.write(handle, data)
    if count == 0:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return count
