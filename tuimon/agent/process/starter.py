"""The tuimon that started this run: named in the environment as PID-STARTTICKS-PIDNAMESPACE."""

import os
from typing import Optional, Tuple

from ..outside import raised_by_us
from ..ring.paths import is_running
from ..variables import variable

_NAMESPACE = "/proc/self/ns/pid"


def starter() -> Optional[Tuple[int, int]]:
    """Its pid and start time; None where none is named, or where it has no pid in our namespace.

    Raises ValueError for what is no name, OSError where our namespace is unknown.
    """
    named = variable("TUIMON_MONITOR")
    if not named:
        return None
    pid, ticks, namespace = named.split("-", 2)
    return (int(pid), int(ticks)) if namespace == os.readlink(_NAMESPACE) else None


def has_ended() -> bool:
    """True if it is known to be gone: killed, or it has left the run to itself."""
    try:
        known = starter()
    except raised_by_us(OSError, ValueError):
        return False
    return known is not None and not is_running(*known)
