"""The ring files: their folders, the process of each, mapping and locking, and the files next to them.

A process that has no room for a ring leaves the reason for the monitor as the name of an open file in memory. A memfd
(memfd_create(2)) is listed among the process's descriptors, and ends with it.

A file next to a ring holds data too large for the ring: JSON, replaced as a whole, for its owner alone.
``PID-TICKS.ring.KIND``. Files of processes that are gone are removed with their rings (writer.py).

The file of stacks holds the samples that the agent takes itself, a window at a time, in the shape of speedscope's files
(https://www.speedscope.app/file-format-schema.json), with the parts that the monitor reads: one profile a thread,
``Thread <OS id> "<name>"``, with the samples in the order they were taken, a list of frame numbers each, root first. In
addition it holds ``order`` and ``window``, which say whose it is, ``begin_ns`` and ``end_ns`` (monotonic), ``cpu_ns``
of the sampling thread, ``instants``, and ``cut``, the number of samples that were deeper than MAX_DEPTH or of more
threads than MAX_THREADS (``control/sample.py``).
"""

import fcntl
import json
import mmap
import os
import struct
import sys
from typing import Any, Dict, List, Optional, Tuple

from ..outside import attempt, variable
from ..private import refusal

#: No pid is higher on Linux (PID_MAX_LIMIT).
PID_LIMIT = 1 << 22
#: The first choice for rings, if room for 256 rings is free: DataLoader workers need it too, and a training ends when
#: it is full. Docker gives 64 MB by default, Linux half of the memory.
SHARED_MEMORY = "/dev/shm"
SHARED_MEMORY_ROOM_BYTES = 600_000_000

#: The folders to use in place of those found here; empty: none were given.
given_directories: List[str] = []


def use_directories(directories: List[str]) -> None:
    """Use these folders for rings from now on: where the monitor that injected us looks for them."""
    given_directories[:] = directories


def ring_directories() -> List[str]:
    """The folders that may hold this user's rings, the preferred one first; ``TUIMON_RING_DIR`` replaces them all."""
    if given_directories:
        return list(given_directories)
    override = variable("TUIMON_RING_DIR")
    if override:
        return [override]
    import tempfile

    name = "tuimon-%d" % os.getuid()
    bases = [SHARED_MEMORY, attempt(tempfile.gettempdir)]  # None if no temporary directory is writable
    return [os.path.join(base, name) for base in bases if base]


def refused_directories() -> Dict[str, str]:
    """The folders that exist but may not be used, each with the reason; none of our rings is in them."""
    refused = {}
    for directory in ring_directories():
        reason = attempt(refusal, directory)  # None as well if it is missing: it will be made
        if reason:
            refused[directory] = reason
    return refused


def shortage(directory: str) -> Optional[str]:
    """The reason why shared memory is left to the training, as a phrase; None if it has room, or for a folder
    elsewhere.

    Raises OSError when there is no shared memory.
    """
    parent = os.path.dirname(directory)
    if parent != SHARED_MEMORY:
        return None
    room = os.statvfs(parent)
    free = room.f_bavail * room.f_frsize
    return "%s has %d MB free" % (parent, free // 1_000_000) if free < SHARED_MEMORY_ROOM_BYTES else None


def ring_directory() -> Optional[str]:
    """The first of the folders in which a ring would be made now; None if there are none."""
    refused = refused_directories()
    for directory in ring_directories():
        place = directory if os.access(directory, os.F_OK) else os.path.dirname(directory)
        if directory not in refused and os.access(place, os.W_OK | os.X_OK) and not shortage(directory):
            return directory
    return None


def ring_name(pid: int) -> str:
    """File name of the ring of a live process. Raises OSError when there is no such process."""
    return "%d-%d.ring" % (pid, start_ticks(pid))


def ring_path(pid: int) -> str:
    """Path of the ring of a live process, if it has one. Raises OSError when there is no such process, or no folder."""
    name, refused = ring_name(pid), refused_directories()
    paths = [os.path.join(folder, name) for folder in ring_directories() if folder not in refused]
    if not paths:
        raise FileNotFoundError("no folder may hold rings")
    for path in paths:
        if os.access(path, os.F_OK):
            return path
    return paths[0]


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat): with the pid, its identity.

    Raises OSError when there is no such process.
    """
    return int(_read("/proc/%d/stat" % pid).rpartition(b")")[2].split()[19])


def _read(path: str) -> bytes:
    """The text of a small file of /proc. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # open() takes three times as long
    try:
        return os.read(handle, 4096)
    finally:
        os.close(handle)


def is_running(pid: int, ticks: int) -> bool:
    """True if the process with this pid and start time still exists."""
    return bool(attempt(start_ticks, pid) == ticks)


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
    anonymous map of Python's, which has no descriptor, with the file laid over it.
    """
    import ctypes  # torch has imported it

    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc_mmap = ctypes.pythonapi["mmap"]  # only ours: a request of this kind always makes a new map
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


#: A memfd with the reason as its name, which may have this many bytes; limits on the size of files do not apply to it.
_NAME, _NAME_BYTES = "tuimon-no-ring: ", 249
_LINK, _LINK_END = "/memfd:%s" % _NAME, " (deleted)"

#: The reason that this process has left last.
_own: Optional[str] = None


def own_reason() -> Optional[str]:
    """The reason why this process has no ring, if it has tried to make one."""
    return _own


def leave_reason(reason: str) -> None:
    """Leave the reason, for as long as this process lives. Raises OSError if there is no memfd."""
    global _own
    _own = reason
    os.memfd_create((_NAME + reason).encode("ascii", "replace")[:_NAME_BYTES].decode())


def file_size_limit() -> int:
    """The most bytes that a file of this process may have (RLIMIT_FSIZE): beyond them SIGXFSZ may end the process.

    Not by ``resource``: torch does not import it, so a module of that name may be the program's.
    """
    name, _, limits = _read("/proc/self/limits").partition(b"Max file size")
    limit = limits.split()[0] if name else b""
    return int(limit) if limit.isdigit() else sys.maxsize


def reason_left_by(pid: int) -> Optional[str]:
    """The note that a process left for the monitor; None when it has a ring, or its descriptors may not be read."""
    folder = "/proc/%d/fd" % pid
    try:
        for number in os.listdir(folder):
            link = os.readlink("%s/%s" % (folder, number))
            if link.startswith(_LINK):
                return link[len(_LINK) : -len(_LINK_END)]
    except OSError:  # it has ended, or closed one: the monitor will look again
        pass
    return None


#: Bytes of the largest file.
FILE_LIMIT = 2 << 20
STACKS, MEMORY, TRACE = "stacks", "memory", "trace"
#: The stacks of the training thread while it was traced.
LINES = "lines"
#: The text of a notebook's cells.
CELLS = "cells"
#: Left by the monitor that has taken a trace, for the one that writes the log.
TRACED = "traced"


def side_file(ring_path: str, kind: str) -> str:
    return "%s.%s" % (ring_path, kind)


def write_file(path: str, content: Dict[str, Any]) -> None:
    """Replace the file in one step. Raises OSError, and ValueError when the content is too large."""
    raw = json.dumps(content, separators=(",", ":")).encode("utf-8", "replace")
    if len(raw) > FILE_LIMIT:
        raise ValueError("%d bytes are too many" % len(raw))
    unborn = path + ".new"
    remove_file(unborn)  # left by a write that was cut short
    handle = os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, raw)
    finally:
        os.close(handle)
    os.rename(unborn, path)


def remove_file(path: str) -> None:
    attempt(os.unlink, path)


#: Bounds of what may be ordered: samples a second, and the length of a window in ms.
MAX_HZ = 20
WINDOW_MS = (200, 20_000)


def pack_sampling(rate_hz: int, window_ms: int) -> int:
    """The argument of the order to sample."""
    return rate_hz | window_ms << 16


def unpack_sampling(argument: int) -> Tuple[int, int]:
    """Samples a second and ms of a window. Raises ValueError when they are out of bounds."""
    rate_hz, window_ms = argument & 0xFFFF, argument >> 16
    if not (1 <= rate_hz <= MAX_HZ and WINDOW_MS[0] <= window_ms <= WINDOW_MS[1]):
        raise ValueError("%d Hz in windows of %d ms" % (rate_hz, window_ms))
    return rate_hz, window_ms
