"""What makes the start quick and the process small: no collections meanwhile, few of everything, nothing unused."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

#: Collections of the middle generation between two of everything; Python's own value is 10.
_FULL_COLLECTIONS = 1000


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Load and build without garbage collections, and leave what is there afterwards out of all later ones.

    Nothing that is loaded becomes garbage; walking it again and again was a quarter of the start's CPU (measured).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def collect_seldom() -> None:
    """Let the garbage collector go through everything a hundredth as often.

    What is held of a log are trees of records, in which nothing is garbage: of 256 ranks that are followed, going
    through them was a third of the CPU, and a tenth as often still a twentieth (measured). What is thrown away young is
    looked at as often as ever.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _FULL_COLLECTIONS)


def without_ssl() -> contextlib.AbstractContextManager[None]:
    """Let asyncio load as in a Python built without OpenSSL: 5 MB and 4 ms less, and nobody here opens a connection."""
    return _without("ssl")


def without_typing_extensions() -> contextlib.AbstractContextManager[None]:
    """Let msgspec load as where only Python's own ``typing`` is installed, which has all that our records use.

    The other one loads inspect, ast and dis: with these, 1.5 MB and 8 ms.
    """
    return _without("typing_extensions")


@contextlib.contextmanager
def _without(module: str) -> Iterator[None]:
    """Let importing a module fail; whoever imports it later gets it."""
    absent = module not in sys.modules
    if absent:
        sys.modules[module] = None  # type: ignore[assignment]  # None: import raises ImportError
    try:
        yield
    finally:
        if absent:
            del sys.modules[module]
