"""The memory of a process, read through ``/proc``: addresses that are not mapped raise, and nothing else happens."""

from __future__ import annotations

import os
from struct import Struct

_WORD = Struct("<Q")
#: Longest string of bytes that is followed to its end.
_C_STRING_BYTES = 64


class Unreadable(Exception):
    """What stands at an address cannot be what it was taken for."""


class ProcessMemory:
    """Reads of one process; of ourselves it needs no right to trace.

    It is open within ``with`` alone: in a training that closes files by their numbers none of ours must stay open.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.folder = "/proc/self" if pid == os.getpid() else "/proc/%d" % pid
        self._file = -1

    def __enter__(self) -> ProcessMemory:
        """Raises OSError where it may not be read."""
        self._file = os.open(self.folder + "/mem", os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(self, *error: object) -> None:
        file, self._file = self._file, -1
        os.close(file)

    def read(self, address: int, size: int) -> bytes:
        """So many bytes. Raises Unreadable."""
        try:
            content = os.pread(self._file, size, address)
        except (OSError, OverflowError, ValueError) as error:
            raise Unreadable("%d bytes at 0x%x" % (size, address)) from error
        if len(content) != size:
            raise Unreadable("%d bytes at 0x%x" % (size, address))
        return content

    def word(self, address: int) -> int:
        """A pointer, or another number of 8 bytes."""
        return word(self.read(address, 8), 0)

    def c_string(self, address: int) -> bytes:
        """A short string that ends with a zero byte."""
        return self.read(address, _C_STRING_BYTES).partition(b"\0")[0]


def word(content: bytes, at: int) -> int:
    """The number of 8 bytes that begins there."""
    found: tuple[int] = _WORD.unpack_from(content, at)
    return found[0]
