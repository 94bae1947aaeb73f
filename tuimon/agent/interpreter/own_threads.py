"""What the threads of this process run, where possible without holding a frame of another thread.

With the GIL held, ``sys._current_frames()`` is safe, but in Python 3.11 (``dumped_stacks.py``); without one, the stacks
are read out of memory.
"""

import os
import sys
from _thread import get_ident
from types import CodeType
from typing import Any, Callable, Collection, Optional

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .code_objects import Code
    from .debug_offsets import DebugOffsets
    from .dumped_stacks import DumpedPlace
    from .memory import ProcessMemory
    from .thread_stacks import ThreadStacks

#: Frames of a stack that are read; what a deeper stack holds beyond them is unknown.
_MAX_DEPTH = 1000

_offsets: "Optional[DebugOffsets]" = None


def has_gil() -> bool:
    """Whether this interpreter runs one thread at a time."""
    enabled: Any = getattr(sys, "_is_gil_enabled", None)
    return enabled is None or bool(enabled())


def has_unsafe_frames() -> bool:
    """Whether frame objects of other threads are a danger although one thread runs at a time (``dumped_stacks.py``)."""
    return sys.implementation.name == "cpython" and sys.version_info[:2] == (3, 11)


def is_running(ident: int, codes: Collection[CodeType]) -> bool:
    """Whether another thread is in one of these functions; True where that cannot be seen."""
    if has_unsafe_frames():
        functions = {(code.co_filename, code.co_name) for code in codes}
        return _is_dumped(lambda place: (place.file, place.name) in functions, ident)
    if has_gil():
        return _has_frame(sys._current_frames().get(ident), lambda code: code in codes)
    addresses = {id(code) for code in codes}
    return _reads(lambda code: code.address in addresses, ident)


def is_in_file(file: Optional[str]) -> bool:
    """Whether any thread is in a function of this file; True where that cannot be seen."""
    if has_unsafe_frames():
        return _is_dumped(lambda place: place.file == file)
    if has_gil():
        return any(_has_frame(frame, lambda code: code.co_filename == file) for frame in sys._current_frames().values())
    if _has_frame(sys._getframe(1), lambda code: code.co_filename == file):
        return True
    return _reads(lambda code: code.file == file)


def _has_frame(frame: Any, wanted: Callable[[CodeType], bool]) -> bool:
    while frame is not None:
        if wanted(frame.f_code):
            return True
        frame = frame.f_back
    return False


def _is_dumped(wanted: "Callable[[DumpedPlace], bool]", ident: int = 0) -> bool:
    """Whether any thread, or the one of that pthread id, is at one of the wanted places."""
    from .dumped_stacks import dump, place_of

    try:
        threads = [thread for thread in dump() if not ident or thread.ident == ident]
    except (ImportError, OSError):
        return True
    return any(thread.is_cut or any(wanted(place_of(frame)) for frame in thread.frames) for thread in threads)


def _reads(wanted: "Callable[[Code], bool]", ident: int = 0) -> bool:
    """Whether a thread but ours, or the one of that pthread id, is in one of the wanted functions."""
    from .debug_offsets import UnknownPython
    from .memory import ProcessMemory, Unreadable

    try:
        with ProcessMemory(os.getpid()) as memory:
            for thread in _own_stacks(memory).sample(get_ident(), ident):
                if thread.places is None or thread.cut or any(wanted(code) for code, _ in thread.places):
                    return True
    except (OSError, UnknownPython, Unreadable):
        return True
    return False


def _own_stacks(memory: "ProcessMemory") -> "ThreadStacks":
    """Where what lies in memory is the same in every process that is forked from this one."""
    from .debug_offsets import find_offsets
    from .thread_stacks import ThreadStacks

    global _offsets
    if _offsets is None:
        _offsets = find_offsets(memory)
    return ThreadStacks(memory, _offsets, _MAX_DEPTH)
