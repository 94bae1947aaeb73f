"""Creates this process's ring in a private directory, and removes the rings that dead processes left there."""

import os
import time
from typing import List, Optional

from ..outside import raised_by_us
from ..private import make_private
from .mapped import lock
from .no_ring import file_size_limit, leave_reason
from .paths import is_running, ring_directories, ring_name, shortage
from .writer import RING_BYTES, RingWriter

#: A ring made less than this ago may not have been found yet by the monitor that waits for it.
YOUNG_S = 30.0


def make_ring() -> Optional[RingWriter]:
    """A ring in the first directory that has room for one; None when none has: then the reasons are left."""
    low = _in_place_of_closed_streams()
    try:
        return _make_ring()
    finally:
        for handle in low:
            os.close(handle)


def _in_place_of_closed_streams() -> List[int]:
    """Handles with the numbers of standard streams that are closed: C code that prints would print into the ring."""
    handles: List[int] = []
    try:
        while (handle := os.open("/", os.O_PATH | os.O_CLOEXEC)) < 3:
            handles.append(handle)
        os.close(handle)
    except raised_by_us(OSError):  # no handle is left
        pass
    return handles


def _make_ring() -> Optional[RingWriter]:
    try:
        directories = ring_directories()
        name = ring_name(os.getpid())
    except raised_by_us(OSError, ValueError, IndexError):
        return None
    limit = file_size_limit()
    if limit < RING_BYTES:
        leave_reason("a ring has %d bytes, files may have %d (ulimit -f)" % (RING_BYTES, limit))
        return None
    reasons = []
    for directory in directories:
        try:
            refused = shortage(directory) or make_private(directory)
            if refused is None:
                _remove_stale(directory)
                return RingWriter(os.path.join(directory, name))
            reasons.append(refused)
        except raised_by_us(OSError, ValueError) as error:  # missing, read-only, full
            reasons.append("%s: %s" % (directory, getattr(error, "strerror", None) or error))
    leave_reason("; ".join(reasons))
    return None


def _remove_stale(directory: str) -> None:
    """Remove the rings of processes that were killed, but for young ones, which the monitor may not have read yet."""
    for name in os.listdir(directory):
        pid, dash, rest = name.partition("-")
        ticks = rest.partition(".")[0]
        if dash and ".ring" in rest and pid.isdecimal() and ticks.isdecimal() and not is_running(int(pid), int(ticks)):
            _remove_unlocked(os.path.join(directory, name))


def _remove_unlocked(path: str) -> None:
    """Unlink the file unless a process holds its lock: one in another pid namespace that shares /dev/shm."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except raised_by_us(OSError):
        return
    try:
        if os.fstat(handle).st_mtime < time.time() - YOUNG_S:
            lock(handle)
            os.unlink(path)
    except raised_by_us(OSError):
        pass
    finally:
        os.close(handle)
