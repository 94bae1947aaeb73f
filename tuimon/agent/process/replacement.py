"""A process that replaces itself by another program (exec): markers that still wait are written to the ring first."""

import os
from functools import wraps
from typing import Any, Callable

from ..torch_compat import rebinding
from ..torch_compat.tracebacks import hide_frame


def hook_exec(write_waiting: Callable[[], None]) -> None:
    """Have ``os.execv`` and ``os.execve``, and those of ``os`` that call them, call ``write_waiting`` first."""
    for name in ("execv", "execve"):
        rebinding.rebind(os, name, _wrapped(getattr(os, name), write_waiting))


def _wrapped(original: Callable[..., Any], write_waiting: Callable[[], None]) -> Callable[..., Any]:
    @wraps(original)
    def tuimon_exec(*args: Any, **kwargs: Any) -> Any:
        write_waiting()
        try:
            return original(*args, **kwargs)
        except BaseException as error:  # there is no such program
            hide_frame(error)
            raise

    return tuimon_exec
