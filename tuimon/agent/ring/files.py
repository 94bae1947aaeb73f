"""Creates this process's ring in a private directory, and removes the rings that dead processes left there."""

import os
import time
from typing import List, Optional

from ..outside import attempt, is_surely_ours
from ..private import make_private
from .mapped import lock
from .no_ring import file_size_limit, leave_reason
from .paths import is_running, ring_directories, ring_name, shortage
from .writer import RING_BYTES, RingWriter

#: A ring made less than this ago may not have been found yet by the monitor that waits for it.
YOUNG_S = 30.0
_STREAMS = 3


def make_ring() -> Optional[RingWriter]:
    """A ring in the first directory that has room for one; None when none has: then the reasons are left.

    Raises OSError where /proc is missing, or no descriptor is left.
    """
    handles: List[int] = []  # with the numbers of closed standard streams: C code would print into the ring
    try:
        while not handles or handles[-1] < _STREAMS:
            handles.append(os.open("/", os.O_PATH | os.O_CLOEXEC))
        os.close(handles.pop())
        return _make_ring()
    finally:
        for handle in handles:
            os.close(handle)


def _make_ring() -> Optional[RingWriter]:
    directories = ring_directories()
    name = ring_name(os.getpid())
    limit = file_size_limit()
    if limit < RING_BYTES:
        leave_reason("a ring has %d bytes, files may have %d (ulimit -f)" % (RING_BYTES, limit))
        return None
    reasons = []
    for directory in directories:
        try:
            refused = shortage(directory) or make_private(directory)
            if refused is None:
                remove_stale(directory)
                return RingWriter(os.path.join(directory, name))
            reasons.append(refused)
        except OSError as error:  # missing, read-only, full
            if not is_surely_ours(error):
                raise
            reasons.append("%s: %s" % (directory, getattr(error, "strerror", None) or error))
    leave_reason("; ".join(reasons))
    return None


def remove_stale(directory: str) -> None:
    """Remove the rings of processes that were killed, but for young ones, which the monitor may not have read yet."""
    for name in os.listdir(directory):
        pid, dash, rest = name.partition("-")
        ticks = rest.partition(".")[0]
        if dash and ".ring" in rest and pid.isdecimal() and ticks.isdecimal() and not is_running(int(pid), int(ticks)):
            attempt(_remove_unlocked, os.path.join(directory, name))


def _remove_unlocked(path: str) -> None:
    """Unlink the file unless a process holds its lock: one in another pid namespace that shares /dev/shm."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(handle).st_mtime < time.time() - YOUNG_S:
            lock(handle)
            os.unlink(path)
    finally:
        os.close(handle)
