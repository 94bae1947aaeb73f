"""Yama's ptrace scope 1 (Ubuntu's default): only an ancestor may read a process, unless the process permits others."""

import os
from typing import Optional

from ..outside import attempt
from ..ring.paths import is_running
from ..variables import variable
from .starter import starter

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
