"""Yama's ptrace scope 1 (Ubuntu's default): only an ancestor may read a process, unless the process permits others."""

import os
from typing import Optional

_SCOPE_FILE = "/proc/sys/kernel/yama/ptrace_scope"
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = -1

_restricted: Optional[bool] = None


def allow_tracers() -> None:
    """Let py-spy, a sibling, sample this process. Needed again in every forked child: it is not inherited."""
    global _restricted
    if _restricted is None:
        _restricted = _scope() == 1
    if not _restricted:
        return
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PTRACER, ctypes.c_ulong(_PR_SET_PTRACER_ANY), 0, 0, 0)
    except Exception:
        _restricted = False


def _scope() -> int:
    try:
        handle = os.open(_SCOPE_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(os.read(handle, 16))
    except (OSError, ValueError):
        return 0
    finally:
        os.close(handle)
