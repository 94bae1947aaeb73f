"""Why a process has no ring, left for the monitor in an open file in memory, as no folder has room for it.

A memfd (memfd_create(2)) is listed among the process's descriptors, and ends with it.
"""

import os
import stat
import sys
from typing import Optional

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
