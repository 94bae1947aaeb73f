"""A process that replaces itself by another program, or ends at once: markers that wait are written first."""

import os
from functools import wraps
from typing import Any, Callable

from ..torch_compat import rebinding
from ..torch_compat.tracebacks import hide_frame


def hook_ends(write_waiting: Callable[[], None]) -> None:
    """Have what ends this program without ``atexit`` call ``write_waiting`` first.

    ``os.execv`` and ``os.execve``, and those of ``os`` that call them; ``os._exit``, which ends the forked children of
    ``multiprocessing``.
    """
    for name in ("execv", "execve", "_exit"):
        rebinding.rebind(os, name, _wrapped(getattr(os, name), write_waiting))


def _wrapped(original: Callable[..., Any], write_waiting: Callable[[], None]) -> Callable[..., Any]:
    @wraps(original)
    def tuimon_end(*args: Any, **kwargs: Any) -> Any:
        write_waiting()
        try:
            return original(*args, **kwargs)
        except BaseException as error:  # there is no such program
            hide_frame(error)
            raise

    return tuimon_end
