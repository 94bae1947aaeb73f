"""Pauses of Python's garbage collector: a marker for each long one."""

import atexit
import gc
import time
from typing import Any, Callable, Dict, Optional

from ..outside import raised_by_us
from ..ring.layout import GC_PAUSE
from ..torch_compat import dynamo

#: Shorter collections get no marker: those of the youngest generation take 10-50 us, hundreds of times a second.
PAUSE_NS = 500_000

_Callback = Callable[[str, Dict[str, Any]], None]

_callback: Optional[_Callback] = None


def install(runtime: Any) -> None:
    """Time every collection, on any thread, as it stops them all. ``runtime`` is the module of that name."""
    global _callback
    if _callback is None:
        _callback = _make_callback(runtime)
        dynamo.skip_with_callees(_callback)  # collections happen inside compiled regions, too
        gc.callbacks.append(_callback)
        atexit.register(uninstall)  # the last collections of an interpreter are no pauses of a training


def uninstall() -> None:
    """Remove our callback from ``gc.callbacks``, wherever it is by now, and leave the user's."""
    global _callback
    callback, _callback = _callback, None
    atexit.unregister(uninstall)
    for place, other in enumerate(gc.callbacks):
        if other is callback:
            del gc.callbacks[place]
            return


def is_installed() -> bool:
    """Whether collections are timed; a program may have emptied ``gc.callbacks``."""
    return _callback is not None and any(other is _callback for other in gc.callbacks)


def _make_callback(runtime: Any, now_ns: Callable[[], int] = time.monotonic_ns) -> _Callback:
    # A closure: while the interpreter ends, the globals of modules become None before the last collections.
    begun_ns = 0

    def tuimon_collected(phase: str, info: Dict[str, Any]) -> None:
        nonlocal begun_ns
        try:
            if phase == "start":
                begun_ns = now_ns()
                return
            pause_ns = now_ns() - begun_ns
            # without a ring ``emit`` may make one at the first marker, which must not be this
            if begun_ns and pause_ns >= PAUSE_NS and runtime.writer() is not None:
                runtime.emit(GC_PAUSE, pause_ns, info["generation"])
        except raised_by_us(Exception):
            return

    return tuimon_collected
