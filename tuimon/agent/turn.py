"""One call at a time through a piece of code, without a lock that an exception could leave locked."""

import sys
from _thread import get_ident
from types import FrameType
from typing import Any, Callable, Dict, Optional

from .own_threads import is_running


class Call:
    """A call that tries to take its turn, or has it."""

    __slots__ = ("thread",)

    def __init__(self) -> None:
        self.thread = get_ident()


class Turn:
    """Lets the first of several overlapping calls through; the others go away at once.

    A signal handler may raise between any two bytecodes: also between the taking of a lock and the ``try`` that would
    release it, and inside the ``finally`` that does. Here a call that is never released holds nobody up: it has ended
    when none of the functions is on the stack of its thread any more.

    ::

        call = turn.take()
        if call is None:
            return
        try:
            ...
        finally:
            turn.release(call)
    """

    def __init__(self, *functions: Callable[..., Any]) -> None:
        """``functions``: those that call ``take``."""
        self._codes = [function.__code__ for function in functions]
        self._calls: Dict[Call, None] = {}  # adding and removing are atomic: everybody sees them in one order

    def take(self) -> Optional[Call]:
        """The caller's turn, to be released at its end; None while another call has it."""
        call = Call()
        calls = self._calls
        calls[call] = None
        if list(calls)[0] is call or self._is_first(call, sys._getframe(1).f_back):  # noqa: RUF015  (others change it)
            return call
        self.release(call)
        return None

    def release(self, call: Call) -> None:
        """The call ends."""
        self._calls.pop(call, None)  # another thread may have found it ended

    def is_taken(self) -> bool:
        """True if a call of another thread has its turn."""
        own = get_ident()
        return any(call.thread != own and self._is_running(call, None) for call in list(self._calls))

    def _is_first(self, call: Call, callers: Optional[FrameType]) -> bool:
        """True if all calls before this one have ended; those that have are forgotten."""
        for earlier in list(self._calls):
            if earlier is call:
                return True
            if self._is_running(earlier, callers):
                return False
            self.release(earlier)
        return False  # another thread found this call ended, which it is not: it lasted until its stack was read

    def _is_running(self, call: Call, callers: Optional[FrameType]) -> bool:
        """True if a call is on the stack of its thread; ``callers``: of the call that asks, in the same thread."""
        if call.thread != get_ident():
            return is_running(call.thread, self._codes)
        while callers is not None:
            if callers.f_code in self._codes:
                return True
            callers = callers.f_back
        return False
