"""What this process was started by and for, and who may trace it.

Yama's ptrace scope 1 (Ubuntu's default): only an ancestor may read a process, unless the process permits others.
"""

import os
import sys
from typing import Optional, Tuple

from ..outside import attempt, variable
from ..ring.files import is_running

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


_SCOPE_FILE = "/proc/sys/kernel/yama/ptrace_scope"
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = -1

is_restricted: Optional[bool] = None


def allow_tracers() -> None:
    """Let the monitor's py-spy, a sibling, sample this process. Needed again in every forked child: not inherited."""
    attempt(_allow_tracers)


def _allow_tracers() -> None:
    global is_restricted
    if is_restricted is None:
        is_restricted = False  # without Yama, nothing is read again
        is_restricted = variable("TUIMON_RUN") is not None and ptrace_scope() == 1
    tracer = _tracer() if is_restricted else None
    if tracer is None:
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PTRACER, ctypes.c_ulong(tracer), 0, 0, 0)


def _tracer() -> Optional[int]:
    """Who may trace us: the tuimon that started the run, with its descendants; None once it has ended.

    Any process where it has no pid in our namespace, where none is named, and where it shows the output of the run: its
    full screen may be left, and the ``tuimon attach`` that comes back to the training is no descendant of it.
    """
    known = None if variable("TUIMON_OUTPUT") else starter()
    if known is None:
        return _PR_SET_PTRACER_ANY
    return known[0] if is_running(*known) else None


def ptrace_scope() -> int:
    """The kernel's setting."""
    handle = os.open(_SCOPE_FILE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(handle, 16))
    finally:
        os.close(handle)
