"""Calls a function in a thread as the thread ends."""

from _thread import _local
from typing import Callable


class _AtEnd:
    """Held by nothing but the thread's own variables, which the interpreter clears as the last act of the thread."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def __del__(self) -> None:
        try:
            self.call()
        except Exception:
            return


_of_thread = _local()


def when_thread_ends(call: Callable[[], None]) -> None:
    """Call this when the calling thread ends; a later call replaces it, and has it called then."""
    _of_thread.at_end = _AtEnd(call)
