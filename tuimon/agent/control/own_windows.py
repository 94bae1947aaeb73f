"""How the stacks of this process can be sampled from within."""

import os
from functools import partial
from typing import Callable

from ..interpreter.own_threads import has_gil, has_unsafe_frames
from ..interpreter.stack_window import StackWindow
from .stack_sampler import Window


class CannotRead(Exception):
    """The stacks cannot be read; the text says why."""


def windows() -> Callable[[], StackWindow]:
    """What begins a window: of the interpreter's frames where these are safe, else without. Raises CannotRead."""
    if has_gil():
        return _dumped_windows() if has_unsafe_frames() else Window
    from ..interpreter.debug_offsets import UnknownPython
    from ..interpreter.memory_window import MemoryReader, MemoryWindow

    try:
        return partial(MemoryWindow, MemoryReader(os.getpid()))
    except UnknownPython as error:
        raise CannotRead("this Python has no GIL, and its stacks cannot be read: %s" % error) from error
    except OSError as error:
        reason = "this Python has no GIL, and the process may not read its own memory (%s)"
        raise CannotRead(reason % error.strerror) from error


def _dumped_windows() -> Callable[[], StackWindow]:
    from ..interpreter import dumped_stacks

    try:
        any(dumped_stacks.dump())
    except (ImportError, OSError) as error:
        raise CannotRead("the stacks of Python 3.11 cannot be written down: %s" % error) from error
    return dumped_stacks.DumpedWindow
