"""What makes the start quick: no collections meanwhile."""

from __future__ import annotations

import contextlib
import gc
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
    collected as often as ever.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _FULL_COLLECTIONS)
