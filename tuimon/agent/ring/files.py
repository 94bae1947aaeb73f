"""Creates this process's ring in a private directory, and removes the rings that dead processes left there.

Where there is no room for a ring, the reason is left for the monitor as the name of an open file in memory. A memfd
(memfd_create(2)) is listed among the process's descriptors, and ends with it.
"""

import os
import sys
import time
from typing import List, Optional

from ..outside import attempt, is_surely_ours
from ..private import make_private
from .mapped import lock
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


#: A memfd with the reason as its name, which may have so many bytes: a limit on the size of files does not matter then.
_NAME, _NAME_BYTES = "tuimon-no-ring: ", 249
_LINK, _LINK_END = "/memfd:%s" % _NAME, " (deleted)"

#: The reason that this process has left last.
_own: Optional[str] = None


def own_reason() -> Optional[str]:
    """Why this process has no ring, if it has tried."""
    return _own


def leave_reason(reason: str) -> None:
    """Leave the reason, for as long as this process lives. Raises OSError where there is no memfd."""
    global _own
    _own = reason
    os.memfd_create((_NAME + reason).encode("ascii", "replace")[:_NAME_BYTES].decode())


def file_size_limit() -> int:
    """The most bytes that a file of this process may have (RLIMIT_FSIZE): beyond them SIGXFSZ may end the process."""
    try:
        import resource
    except ImportError:  # left out when this Python was built
        return sys.maxsize
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def reason_left_by(pid: int) -> Optional[str]:
    """The note that a process left for the monitor; None when it has a ring, or its descriptors may not be read."""
    folder = "/proc/%d/fd" % pid
    try:
        for number in os.listdir(folder):
            link = os.readlink("%s/%s" % (folder, number))
            if link.startswith(_LINK):
                return link[len(_LINK) : -len(_LINK_END)]
    except OSError:  # it has ended, or closed one: there will be another look
        pass
    return None
