"""How the stacks of this process can be sampled from within."""

import os
from functools import partial
from typing import Callable

from ..interpreter.own_threads import has_gil
from ..interpreter.stack_window import StackWindow
from .stack_sampler import Window


class CannotRead(Exception):
    """They cannot; the text says why."""


def windows() -> Callable[[], StackWindow]:
    """What begins a window: of the interpreter's frames where it has a GIL, else of its memory. Raises CannotRead."""
    if has_gil():
        return Window
    from ..interpreter.debug_offsets import UnknownPython
    from ..interpreter.memory_window import MemoryReader, MemoryWindow

    try:
        return partial(MemoryWindow, MemoryReader(os.getpid()))
    except UnknownPython as error:
        raise CannotRead("this Python has no GIL, and its stacks cannot be read: %s" % error) from error
    except OSError as error:
        reason = "this Python has no GIL, and the process may not read its own memory (%s)"
        raise CannotRead(reason % error.strerror) from error
