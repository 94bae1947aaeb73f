"""The paths of ring files, and the process that a ring belongs to."""

import os
from typing import Dict, List, Optional

from ..outside import attempt, variable
from ..private import refusal

#: No pid is higher on Linux (PID_MAX_LIMIT).
PID_LIMIT = 1 << 22
#: The first choice for rings, if so much is free, 256 rings: DataLoader workers need it too, and a training ends where
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
    """Why shared memory is left to the training, as a phrase; None if it has room, or for a folder elsewhere.

    Raises OSError when there is no shared memory.
    """
    parent = os.path.dirname(directory)
    if parent != SHARED_MEMORY:
        return None
    room = os.statvfs(parent)
    free = room.f_bavail * room.f_frsize
    return "%s has %d MB free" % (parent, free // 1_000_000) if free < SHARED_MEMORY_ROOM_BYTES else None


def ring_directory() -> Optional[str]:
    """The first of the folders in which a ring would be made now; None without any."""
    refused = refused_directories()
    for directory in ring_directories():
        place = directory if os.access(directory, os.F_OK) else os.path.dirname(directory)
        if directory not in refused and os.access(place, os.W_OK | os.X_OK) and not shortage(directory):
            return directory
    return None


def ring_name(pid: int) -> str:
    """File name of the ring of a live process. Raises OSError when there is no such process."""
    return "%d-%d.ring" % (pid, start_ticks(pid))


def ring_path(pid: int, directory: Optional[str] = None) -> str:
    """Path of the ring of a live process, if it has one. Raises OSError when there is no such process, or no folder."""
    name = ring_name(pid)
    refused = () if directory else refused_directories()
    directories = [directory] if directory else [folder for folder in ring_directories() if folder not in refused]
    if not directories:
        raise FileNotFoundError("no folder may hold rings")
    paths = [os.path.join(folder, name) for folder in directories]
    for path in paths:
        if os.access(path, os.F_OK):
            return path
    return paths[0]


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat): with the pid, its identity.

    Raises OSError when there is no such process.
    """
    handle = os.open("/proc/%d/stat" % pid, os.O_RDONLY | os.O_CLOEXEC)  # open() takes three times as long
    try:
        return int(os.read(handle, 4096).rpartition(b")")[2].split()[19])
    finally:
        os.close(handle)


def is_running(pid: int, ticks: int) -> bool:
    """True if the process with this pid and start time still exists."""
    return bool(attempt(start_ticks, pid) == ticks)
