"""A ring's file in memory and under a lock, by system calls that any Python program makes."""

import fcntl
import mmap
import os
import struct
from typing import List

_BLOCK = bytes(1 << 16)
#: ``struct flock``: type, whence, start, length, pid, padding. One byte: the loading slots have locks of their own.
_FIRST_BYTE = struct.pack("hhqqii", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0, 0)
_F_OFD_SETLK = 37  # <fcntl.h>
_MAP_FIXED = 0x10  # <sys/mman.h>

#: Areas whose mapping failed: who has their addresses now is not known, so that they are never unmapped.
_failed: List[mmap.mmap] = []


def map_file(handle: int, size: int, offset: int = 0) -> mmap.mmap:
    """The file's bytes, shared; no descriptor is needed from then on. Raises OSError.

    ``mmap.mmap(handle, ...)`` hides a duplicate of the descriptor and closes its number at the end. By then the program
    may have closed it (``os.closerange``, as daemons do), and have a file of its own under that number. So this is an
    anonymous map of Python's, which has none, with the file laid over it.
    """
    import ctypes  # torch has imported it

    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc_mmap = ctypes.pythonapi["mmap"]  # no other's: what is asked for so is made anew
    libc_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    libc_mmap.restype = ctypes.c_void_p
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if libc_mmap(address, size, access, mmap.MAP_SHARED | _MAP_FIXED, handle, offset) != address:
        _failed.append(area)
        raise OSError("mmap failed")
    return area


def fill(handle: int, size: int) -> None:
    """Write zeros to an empty file: no write to its map raises SIGBUS later. Raises OSError when there is no room."""
    while size > 0:
        size -= os.write(handle, _BLOCK[:size])


def lock(handle: int) -> None:
    """Lock the file for as long as anyone has it open or mapped. Raises OSError when it is locked, or cannot be.

    As flock(2), by fcntl(2): an open file description lock. There are sandboxes that kill a process for flock.
    """
    fcntl.fcntl(handle, _F_OFD_SETLK, _FIRST_BYTE)
