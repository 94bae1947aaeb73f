"""Creates this process's ring in a private directory, and removes the rings that dead processes left there.

Where there is no room for a ring, the reason is left for the monitor in an open file in memory. A memfd
(memfd_create(2)) is listed among the process's descriptors, and ends with it.
"""

import os
import stat
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


_NAME = "tuimon-no-ring"
_LINK = "/memfd:%s (deleted)"
_REASON_BYTES = 1024
#: Stands in the name where no file may have any bytes (``ulimit -f 0``).
_NO_BYTES = "%s: files may have 0 bytes (ulimit -f)" % _NAME

#: The reason that this process has left last.
_own: Optional[str] = None


def own_reason() -> Optional[str]:
    """Why this process has no ring, if it has tried."""
    return _own


def leave_reason(reason: str) -> None:
    """Leave the reason, for as long as this process lives. Raises OSError where there is no memfd."""
    global _own
    _own = reason
    limit = file_size_limit()
    handle = os.memfd_create(_NO_BYTES if limit == 0 else _NAME)
    os.write(handle, reason.encode("utf-8", "replace")[: min(_REASON_BYTES, limit)])


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
        links = ["%s/%s" % (folder, number) for number in os.listdir(folder)]
    except OSError:
        return None
    return next(filter(None, map(_read, links)), None)


def _read(link: str) -> Optional[str]:
    try:
        name = os.readlink(link)
        if name == _LINK % _NO_BYTES:
            return _NO_BYTES.partition(": ")[2]
        if name != _LINK % _NAME:
            return None
        handle = os.open(link, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
        return os.pread(handle, _REASON_BYTES, 0).decode("utf-8", "replace") if is_file else None
    except OSError:
        return None
    finally:
        os.close(handle)
