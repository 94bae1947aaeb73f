"""User ranges as markers: what ``tuimon.phase`` and NVTX both come down to. Nothing here raises into user code."""

import itertools
from types import CodeType, FrameType
from typing import Optional

from .. import runtime
from ..ring.layout import MARK, RANGE_END, RANGE_POP, RANGE_PUSH, RANGE_START, STEP
from ..torch_compat import dynamo

_next_handle = itertools.count(1).__next__


def hide() -> None:
    """Keep this out of torch.compile's sight."""
    dynamo.skip_with_callees(push, push_function, pop, start, start_function, end, mark, step)


def push(name: object, frame: FrameType) -> None:
    """A range begins on this thread, nested in those that are open."""
    runtime.emit(RANGE_PUSH, number(name, frame))


def push_function(name: object, code: Optional[CodeType]) -> None:
    """A range begins that is a whole function."""
    runtime.emit(RANGE_PUSH, number_of_function(name, code))


def pop(frame: Optional[FrameType] = None) -> None:
    """The innermost range of this thread ends; ``frame`` where a call ends it, not the end of a block."""
    runtime.emit(RANGE_POP, number("", frame) if frame is not None else 0)


def start(number: int) -> int:
    """A range begins that need not nest and may end on any thread; returns its handle for ``end``."""
    handle = _next_handle() & 0xFFFFFFFF
    runtime.emit(RANGE_START, handle, number)
    return handle


def start_function(name: object, code: Optional[CodeType]) -> int:
    """As ``start``, for a range that is a whole function."""
    return start(number_of_function(name, code))


def end(handle: Optional[int], frame: Optional[FrameType] = None) -> None:
    """The range with this handle ends; None: it was never begun. ``frame``: as in ``pop``."""
    if handle is not None:
        runtime.emit(RANGE_END, handle, number("", frame) if frame is not None else 0)


def step() -> None:
    """A training step ends."""
    runtime.emit(STEP)
    if runtime.facts_due:
        runtime.tell_facts()


def mark(name: object, frame: FrameType) -> None:
    """Something happened."""
    runtime.emit(MARK, number(name, frame))


def number(name: object, frame: FrameType) -> int:
    """Id of a name at the place where ``frame`` is; 0 when it cannot be told."""
    names = runtime.names or runtime.open_names()
    return names.number(name, frame) if names is not None else 0


def number_of_function(name: object, code: Optional[CodeType]) -> int:
    """Id of a name for the whole of a function; 0 when it cannot be told."""
    names = runtime.names or runtime.open_names()
    return names.number_of_function(name, code) if names is not None else 0
