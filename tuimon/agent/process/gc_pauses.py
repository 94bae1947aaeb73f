"""Pauses of Python's garbage collector: a marker for each that is long enough to be felt."""

import atexit
import gc
import time
from typing import Any, Callable, Dict, Optional

from ..ring.layout import GC_PAUSE
from ..torch_compat import dynamo

#: Shorter collections are not told of: those of the youngest generation come by the hundred a second and take 10-50 us.
PAUSE_NS = 500_000

_Callback = Callable[[str, Dict[str, Any]], None]

_callback: Optional[_Callback] = None


def install(runtime: Any) -> None:
    """Be told of every collection, on any thread: it stops all of them. ``runtime`` is the module of that name."""
    global _callback
    if _callback is None:
        _callback = _make_callback(runtime)
        dynamo.skip_with_callees(_callback)  # collections happen inside compiled regions, too
        gc.callbacks.append(_callback)
        atexit.register(uninstall)  # what an interpreter collects at its end is no pause of a training


def uninstall() -> None:
    """Take ours from ``gc.callbacks``, wherever it stands there by now; what the user put there stays."""
    global _callback
    callback, _callback = _callback, None
    atexit.unregister(uninstall)
    for place, other in enumerate(gc.callbacks):
        if other is callback:
            del gc.callbacks[place]
            return


def watched() -> bool:
    """Whether collections are told of; a program may have emptied ``gc.callbacks``."""
    return _callback is not None and any(other is _callback for other in gc.callbacks)


def _make_callback(runtime: Any, now_ns: Callable[[], int] = time.monotonic_ns) -> _Callback:
    # A closure: while the interpreter ends, the globals of modules turn into None before the last collections.
    begun_ns = 0

    def tuimon_collected(phase: str, info: Dict[str, Any]) -> None:
        nonlocal begun_ns
        try:
            if phase == "start":
                begun_ns = now_ns()
                return
            pause_ns = now_ns() - begun_ns
            # without a ring ``emit`` may be waiting for a first marker, which this must not be
            if begun_ns and pause_ns >= PAUSE_NS and runtime.writer() is not None:
                runtime.emit(GC_PAUSE, pause_ns, info["generation"])
        except Exception:
            return

    return tuimon_collected
