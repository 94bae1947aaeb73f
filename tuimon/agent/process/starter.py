"""What this process was started by and for."""

import os
import sys
from typing import Optional, Tuple

from ..outside import attempt
from ..ring.paths import is_running
from ..variables import variable

#: In the command lines of processes that import torch and rarely train.
_AUXILIARY_SIGNS = (b"--multiprocessing-fork", b"multiprocessing.forkserver", b"_inductor/compile_worker")
_NAMESPACE = "/proc/self/ns/pid"


def starter() -> Optional[Tuple[int, int]]:
    """Pid and start time of the tuimon that started this run, named in the environment: PID-STARTTICKS-PIDNAMESPACE.

    None where none is named, or where it has no pid in our namespace. Raises ValueError for what is no name, OSError
    where our namespace is unknown.
    """
    named = variable("TUIMON_MONITOR")
    if not named:
        return None
    pid, ticks, namespace = named.split("-", 2)
    return (int(pid), int(ticks)) if namespace == os.readlink(_NAMESPACE) else None


def has_ended() -> bool:
    """True if that tuimon is known to be gone: killed, or it has left the run to itself."""
    known = attempt(starter)
    return known is not None and not is_running(*known)


def is_auxiliary() -> bool:
    """True if this is a child of multiprocessing or a compiler process: it gets a ring only once it trains."""
    if "--multiprocessing-fork" in sys.argv:
        return True
    line = attempt(_command_line) or b""
    return any(sign in line for sign in _AUXILIARY_SIGNS)


def _command_line() -> bytes:
    with open("/proc/self/cmdline", "rb") as cmdline:
        return cmdline.read(65536)
