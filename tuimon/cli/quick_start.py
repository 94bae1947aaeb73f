"""A quick start, and a word to the user when it is slow all the same."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

from tuimon.cli.writing import write_message

#: Collections of the middle generation between two of everything; Python's own value is 10.
_SELDOM, _OFTEN = 1000, 1
#: Seconds after which a start is slow: our choice, three times what an idle machine takes to the first frame.
SLOW_S = 1.0


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


@contextlib.contextmanager
def word_when_slow(text: str, after_s: float = SLOW_S) -> Iterator[None]:
    """Write this on stderr if what is done meanwhile takes long: a first start reads everything from a cold disk."""
    timer = threading.Timer(after_s, write_message, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # the screen comes next: nothing is to be written into it


def collect_seldom() -> None:
    """Let the garbage collector go through everything a hundredth as often.

    A log is held as trees of records, in which nothing is garbage: with 256 ranks that are followed, going through them
    was a third of the CPU, and a tenth as often still a twentieth (measured). Young objects are collected as often as
    ever.
    """
    gc.set_threshold(*gc.get_threshold()[:2], _SELDOM)


def collect_often() -> None:
    """Let the garbage collector go through everything five times as often.

    On the screen of a run: what was loaded is left out, and the rest is little. Each line that Textual draws holds
    itself in its own caches, and would stay for 40 s: 3 MB of them (measured).
    """
    gc.set_threshold(*gc.get_threshold()[:2], _OFTEN)
