"""Pauses of Python's garbage collector: a marker for each long one."""

import atexit
import gc
import time
from typing import Any, Callable, Dict, Optional

from ..outside import shielded
from ..ring.layout import GC_PAUSE
from ..torch_compat import dynamo

#: Shorter collections get no marker: those of the youngest generation take 10-50 us, hundreds of times a second.
PAUSE_NS = 500_000

_Callback = Callable[[str, Dict[str, Any]], object]

_callback: Optional[_Callback] = None


def install(runtime: Any) -> None:
    """Time every collection, on any thread, as it stops them all. ``runtime`` is the module of that name."""
    global _callback
    if _callback is None:
        _callback = make_callback(runtime)
        gc.callbacks.append(_callback)
        atexit.register(uninstall)  # the last collections of an interpreter are not pauses of a training


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
    """True if collections are timed; a program may have emptied ``gc.callbacks``."""
    return _callback is not None and any(other is _callback for other in gc.callbacks)


def make_callback(runtime: Any, now_ns: Callable[[], int] = time.monotonic_ns) -> _Callback:
    """The callback for ``gc.callbacks`` that marks long collections."""
    # A closure: while the interpreter ends, the globals of modules become None before the last collections.
    begun_ns = pause_ns = 0

    def tuimon_collected(given: Any) -> None:
        """``given``: the phase, and then what is known of the collection."""
        nonlocal begun_ns, pause_ns
        if given == "start":
            begun_ns, pause_ns = now_ns(), 0
        elif given == "stop":
            pause_ns = now_ns() - begun_ns if begun_ns else 0
        # without a ring ``emit`` may make one at the first marker, which must not be this
        elif pause_ns >= PAUSE_NS and runtime.writer() is not None:
            runtime.emit(GC_PAUSE, pause_ns, given["generation"])

    dynamo.skip_with_callees(tuimon_collected)  # collections happen inside compiled regions, too
    return shielded(tuimon_collected)
