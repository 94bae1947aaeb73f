"""Why a process has no ring, left for the monitor in an open file without a name, as no folder has room for it.

A memfd (memfd_create(2)) is listed among the process's descriptors, and ends with it.
"""

import os
import stat
from typing import Optional

_NAME = "tuimon-no-ring"
_LINK = "/memfd:%s (deleted)" % _NAME
_REASON_BYTES = 1024

#: What this process has left last.
_own: Optional[str] = None


def own_reason() -> Optional[str]:
    """Why this process has no ring, if it has tried."""
    return _own


def leave_reason(reason: str) -> None:
    """Leave the reason, for as long as this process lives; where there is no memfd, none."""
    global _own
    _own = reason
    try:
        handle = os.memfd_create(_NAME)
        os.write(handle, reason.encode("utf-8", "replace")[:_REASON_BYTES])
    except (OSError, AttributeError):  # a Python built against an old libc
        pass


def reason_left_by(pid: int) -> Optional[str]:
    """What a process has left, for the monitor; None when it has a ring, or its descriptors may not be read."""
    folder = "/proc/%d/fd" % pid
    try:
        links = ["%s/%s" % (folder, number) for number in os.listdir(folder)]
    except OSError:
        return None
    return next(filter(None, map(_read, links)), None)


def _read(link: str) -> Optional[str]:
    try:
        if os.readlink(link) != _LINK:
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
