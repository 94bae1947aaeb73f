"""Reads which code the threads of this process run, safely in each version of Python; lets calls take turns.

With the GIL held, ``sys._current_frames()`` is safe, except in Python 3.11; in 3.11, and without a GIL,
``faulthandler`` dumps the stacks.

In Python 3.11 ``sys._current_frames()`` and ``f_back`` make frame objects on demand, which may begin a garbage
collection. Code run by the collection can let another thread go on. If that thread returns from the frame in question,
the frame object is made of freed memory (``_PyFrame_MakeAndSetFrameObject``). Trainings whose stacks were
sampled that way while threads came and went crashed within minutes. Before 3.11 frames are objects from the start, and
from 3.12 on a collection waits for the next instruction. ``faulthandler`` makes none, and lets no thread run meanwhile.

Without a GIL the thread whose frame is read runs on, and reading it is a use after free
(https://docs.python.org/3.13/howto/free-threading-python.html#frame-objects; python/cpython issue 152355).
``faulthandler`` stops all threads while it writes, from 3.13.2 on (python/cpython issue 128400); before, a dump may
crash as well (``has_unsafe_dumps``).
"""

import os
import re
import sys
from _thread import get_ident
from types import CodeType, FrameType
from typing import Any, Callable, Collection, Dict, Iterator, List, NamedTuple, Optional

from .outside import attempt

#: From this Python on, a dump stops all threads if there is no GIL.
SAFE_DUMPS = (3, 13, 2)


#: 3.14 adds the thread's name.
_THREAD = re.compile(rb"(?:Current thread|Thread) 0x([0-9a-f]+) (?:\[.*\] )?\(most recent call first\):")
_PLACE = re.compile(rb'  File (?:"(.*)"|\?\?\?), line (\d+|\?\?\?) in (.*)')
#: The outermost frames of a deeper stack are left out, from 3.13 on without a mark.
_MAX_DEPTH = 100
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")


class DumpedThread(NamedTuple):
    """A thread by its pthread id, and its frames as they were written, innermost first."""

    ident: int
    frames: List[bytes]
    is_cut: bool


class DumpedPlace(NamedTuple):
    """The function that a frame runs."""

    file: str
    line: int
    name: str


def dumped() -> Optional[List[DumpedThread]]:
    """The threads of ``dump`` as a list; None if no file can be made."""
    threads: Optional[List[DumpedThread]] = attempt(lambda: list(dump()))
    return threads


def dump() -> Iterator[DumpedThread]:
    """All threads that run Python now, the calling one among them; raises OSError if no file can be made."""
    import faulthandler

    handle = os.memfd_create("stacks", os.MFD_CLOEXEC)
    try:
        faulthandler.dump_traceback(handle, all_threads=True)
        raw = os.pread(handle, os.fstat(handle).st_size, 0)
    finally:
        os.close(handle)
    for text in raw.split(b"\n\n"):
        head, *lines = text.splitlines() or [b""]
        thread = _THREAD.match(head)
        if thread is not None:
            frames = [line for line in lines if line.startswith(b"  File ")]
            yield DumpedThread(int(thread[1], 16), frames, len(frames) >= _MAX_DEPTH)


def dumped_place(frame: bytes) -> DumpedPlace:
    found = _PLACE.match(frame)
    if found is None:
        return DumpedPlace("", 0, "?")
    file, line, name = found.groups()
    return DumpedPlace(_text(file or b""), int(line) if line.isdigit() else 0, _text(name))


def _text(raw: bytes) -> str:
    """Characters beyond ASCII stand as Python's escapes."""
    return _ESCAPED.sub(lambda found: chr(int(found[1] or found[2] or found[3], 16)), raw.decode("ascii", "replace"))


def has_gil() -> bool:
    """True if this interpreter runs one thread at a time."""
    enabled: Any = getattr(sys, "_is_gil_enabled", None)
    return enabled is None or bool(enabled())


def has_unsafe_frames() -> bool:
    """True if making frame objects of other threads may crash (see the module's docstring)."""
    return not has_gil() or (sys.implementation.name == "cpython" and sys.version_info[:2] == (3, 11))


def has_unsafe_dumps() -> bool:
    """True if even a dump of other threads may crash (see the module's docstring)."""
    return not has_gil() and sys.version_info < SAFE_DUMPS


def is_running(ident: int, codes: Collection[CodeType]) -> bool:
    """True if another thread is in one of these functions; True if that cannot be seen."""
    if has_unsafe_frames():
        functions = {(code.co_filename, code.co_name) for code in codes}
        return _is_dumped(lambda place: (place.file, place.name) in functions, ident)
    return _has_frame(sys._current_frames().get(ident), lambda code: code in codes)


def is_in_file(file: Optional[str]) -> bool:
    """True if any thread is in a function of this file; True if that cannot be seen."""
    if has_unsafe_frames():
        return _is_dumped(lambda place: place.file == file)
    return any(_has_frame(frame, lambda code: code.co_filename == file) for frame in sys._current_frames().values())


def _has_frame(frame: Any, wanted: Callable[[CodeType], bool]) -> bool:
    while frame is not None:
        if wanted(frame.f_code):
            return True
        frame = frame.f_back
    return False


def _is_dumped(wanted: Callable[[DumpedPlace], bool], ident: int = 0) -> bool:
    """True if any thread, or the one of that pthread id, is at one of the wanted places."""
    if has_unsafe_dumps():
        return True
    threads = dumped()
    if threads is None:
        return True
    return any(
        thread.is_cut or any(wanted(dumped_place(frame)) for frame in thread.frames)
        for thread in threads
        if not ident or thread.ident == ident
    )


class Turning:
    """A call that tries to take its turn, or has it."""

    __slots__ = ("thread",)

    def __init__(self) -> None:
        self.thread = get_ident()


class Turn:
    """Lets the first of several overlapping calls through; the others return immediately.

    A signal handler may raise between any two bytecodes: also between the taking of a lock and the ``try`` that would
    release it, and inside the ``finally`` that does. Here a call that is never released does not block others: it
    counts as ended when none of the functions is on the stack of its thread any more.

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
        self._calls: Dict[Turning, None] = {}  # adding and removing are atomic: everybody sees them in one order

    def take(self) -> Optional[Turning]:
        """The caller's turn, to be released at its end; None while another call has it."""
        call = Turning()
        calls = self._calls
        calls[call] = None
        callers = None
        for earlier in list(calls):
            if earlier is call:
                return call
            callers = callers or sys._getframe(1).f_back
            if self._is_running(earlier, callers):
                break
            self.release(earlier)  # it has ended
        self.release(call)  # or another thread found it ended, which it is not: it lasted until its stack was read
        return None

    def release(self, call: Turning) -> None:
        self._calls.pop(call, None)  # another thread may have found it ended

    def is_taken(self) -> bool:
        """True if a call of another thread has its turn."""
        own = get_ident()
        return any(call.thread != own and self._is_running(call, None) for call in list(self._calls))

    def _is_running(self, call: Turning, callers: Optional[FrameType]) -> bool:
        """True if a call is on the stack of its thread; ``callers``: of the call that asks, in the same thread."""
        if call.thread != get_ident():
            return is_running(call.thread, self._codes)
        while callers is not None:
            if callers.f_code in self._codes:
                return True
            callers = callers.f_back
        return False
