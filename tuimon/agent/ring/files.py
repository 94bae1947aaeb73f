"""Making this process's ring: a private directory, and no leftovers of dead processes."""

import fcntl
import os
import stat
import time
from typing import Optional

from .layout import ring_directories, start_ticks
from .writer import RingWriter

#: A ring made less than this ago may not have been found yet by the monitor that waits for it.
YOUNG_S = 30.0


def make_ring() -> Optional[RingWriter]:
    """A ring in the first directory that has room for one; None when there is none."""
    try:
        directories = ring_directories()
        name = "%d-%d.ring" % (os.getpid(), start_ticks(os.getpid()))
    except (OSError, ValueError, IndexError):
        return None
    for directory in directories:
        try:
            _claim(directory)
            _remove_stale(directory)
            return RingWriter(os.path.join(directory, name))
        except (OSError, ValueError):  # missing, read-only, full, somebody else's
            continue
    return None


def _claim(directory: str) -> None:
    """Make the directory, for this user alone. Raises OSError when it is not, and cannot become, our own."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    info = os.lstat(directory)  # no symbolic link: anybody may have put it there
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise PermissionError("%s is not a directory of this user" % directory)
    if stat.S_IMODE(info.st_mode) & 0o077:
        os.chmod(directory, 0o700)


def _remove_stale(directory: str) -> None:
    """Remove the rings of processes that are gone, killed before they could do so.

    Not the youngest: the monitor may not have come to read them yet.
    """
    for name in os.listdir(directory):
        pid, dash, rest = name.partition("-")
        ticks = rest.partition(".")[0]
        if dash and ".ring" in rest and pid.isdigit() and ticks.isdigit() and not _lives(int(pid), int(ticks)):
            _remove_unlocked(os.path.join(directory, name))


def _lives(pid: int, ticks: int) -> bool:
    try:
        return start_ticks(pid) == ticks
    except (OSError, ValueError, IndexError):
        return False


def _remove_unlocked(path: str) -> None:
    """Unlink the file unless a process holds its lock: one in another pid namespace that shares /dev/shm."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        if os.fstat(handle).st_mtime < time.time() - YOUNG_S:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
    except OSError:
        pass
    finally:
        os.close(handle)
