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
    """Call this when the calling thread ends, in place of what an earlier call has asked for."""
    at_end = getattr(_of_thread, "at_end", None)
    if at_end is None:
        _of_thread.at_end = _AtEnd(call)
    else:  # another object would end the first here, in whose ``__del__`` a handler's exception is lost
        at_end.call = call
