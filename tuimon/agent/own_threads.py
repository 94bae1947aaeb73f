"""The code that the threads of this process run, if possible without holding a frame of another thread.

With the GIL held, ``sys._current_frames()`` is safe, but in Python 3.11; there, and without a GIL, stacks are dumped
(``dumped_stacks.py``).
"""

import sys
from types import CodeType
from typing import Any, Callable, Collection, Optional

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .dumped_stacks import DumpedPlace

#: From this Python on, a dump stops all threads where there is no GIL.
SAFE_DUMPS = (3, 13, 2)


def has_gil() -> bool:
    """True if this interpreter runs one thread at a time."""
    enabled: Any = getattr(sys, "_is_gil_enabled", None)
    return enabled is None or bool(enabled())


def has_unsafe_frames() -> bool:
    """True if frame objects of other threads are a danger (``dumped_stacks.py``)."""
    return not has_gil() or (sys.implementation.name == "cpython" and sys.version_info[:2] == (3, 11))


def has_unsafe_dumps() -> bool:
    """True if not even a dump of other threads is safe (``dumped_stacks.py``)."""
    return not has_gil() and sys.version_info < SAFE_DUMPS


def is_running(ident: int, codes: Collection[CodeType]) -> bool:
    """True if another thread is in one of these functions; True where that cannot be seen."""
    if has_unsafe_frames():
        functions = {(code.co_filename, code.co_name) for code in codes}
        return _is_dumped(lambda place: (place.file, place.name) in functions, ident)
    return _has_frame(sys._current_frames().get(ident), lambda code: code in codes)


def is_in_file(file: Optional[str]) -> bool:
    """True if any thread is in a function of this file; True where that cannot be seen."""
    if has_unsafe_frames():
        return _is_dumped(lambda place: place.file == file)
    return any(_has_frame(frame, lambda code: code.co_filename == file) for frame in sys._current_frames().values())


def _has_frame(frame: Any, wanted: Callable[[CodeType], bool]) -> bool:
    while frame is not None:
        if wanted(frame.f_code):
            return True
        frame = frame.f_back
    return False


def _is_dumped(wanted: "Callable[[DumpedPlace], bool]", ident: int = 0) -> bool:
    """True if any thread, or the one of that pthread id, is at one of the wanted places."""
    if has_unsafe_dumps():
        return True
    from .dumped_stacks import dumped, place_of

    threads = dumped()
    if threads is None:
        return True
    return any(
        thread.is_cut or any(wanted(place_of(frame)) for frame in thread.frames)
        for thread in threads
        if not ident or thread.ident == ident
    )
