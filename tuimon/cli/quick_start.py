"""Ways to start quickly, and a message if the start is slow all the same."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

from tuimon.cli.writing import write_message

#: Collections of the middle generation between two full ones; Python's own value is 10.
_SELDOM, _OFTEN = 1000, 1
#: Seconds after which a start is slow: our choice, three times what an idle machine takes to the first frame.
SLOW_S = 1.0


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Suspend garbage collections within the block, and exempt the objects that exist at its end from all later ones.

    Loaded modules never become garbage; walking them again and again was a quarter of the start's CPU (measured).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def message_if_slow(text: str, after_s: float = SLOW_S) -> Iterator[None]:
    """Write ``text`` on stderr if the block takes longer than ``after_s``: a first start reads all from a cold disk."""
    timer = threading.Timer(after_s, write_message, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # the screen comes next: the message must not be written into it


def collect_seldom() -> None:
    """Make full garbage collections a hundred times rarer.

    A log is held as trees of records, in which nothing is garbage. For a followed run of 256 ranks, full collections
    took a third of the CPU, and ten times rarer still a twentieth (measured). Young objects are collected as before.
    """
    gc.set_threshold(*gc.get_threshold()[:2], _SELDOM)


def collect_often() -> None:
    """Make full garbage collections five times more frequent, for the screen of a live run.

    Loaded modules are exempt, and the other objects are few. Each line that Textual draws refers to itself through its
    caches, and would otherwise stay for 40 s: 3 MB of them (measured).
    """
    gc.set_threshold(*gc.get_threshold()[:2], _OFTEN)
