"""The markers of user ranges, whether from ``tuimon.phase`` or NVTX. Nothing here raises into user code."""

from _thread import get_ident
from types import CodeType, FrameType
from typing import Optional

from .. import runtime
from ..pace import pace
from ..ring.layout import (
    MARK,
    RANGE_POP,
    RANGE_PUSH,
    STEP,
    STEP_SAMPLES,
    STEP_SIZE,
    STEP_TOKENS,
)
from ..torch_compat import dynamo

#: The most samples or tokens of a step: more is an error of the program's.
_LARGEST = 1 << 40


def hide_from_dynamo() -> None:
    """Have Dynamo skip the functions below."""
    dynamo.skip_with_callees(push, push_function, pop, mark, step)


def push(name: object, frame: FrameType) -> None:
    """Begin a range on this thread, nested in those that are open."""
    runtime.emit(RANGE_PUSH, name_id(name, frame))


def push_function(name: object, code: Optional[CodeType]) -> None:
    """Begin a range that is a whole function."""
    runtime.emit(RANGE_PUSH, function_name_id(name, code))


def pop(frame: Optional[FrameType] = None) -> None:
    """End the innermost range of this thread; ``frame``: of the call that ends it, None at the end of a block."""
    runtime.emit(RANGE_POP, name_id("", frame) if frame is not None else 0)


def step(samples: Optional[int] = None, tokens: Optional[int] = None) -> None:
    """End a training step that held so many samples and tokens."""
    for flag, count in ((STEP_SAMPLES, samples), (STEP_TOKENS, tokens)):
        if type(count) is int and 0 <= count < _LARGEST:
            runtime.emit(STEP_SIZE, count, flag)
    if pace.thread == get_ident():
        pace.mark()
    else:
        runtime.emit(STEP)
    if runtime.facts_due:
        runtime.publish_facts()


def mark(name: object, frame: FrameType) -> None:
    """Mark this moment."""
    runtime.emit(MARK, name_id(name, frame))


def name_id(name: object, frame: FrameType) -> int:
    """Id of a name at the current place of ``frame``; 0 without a ring or room for the name."""
    names = runtime.names or runtime.open_names()
    return names.place_id(name, frame) if names is not None else 0


def function_name_id(name: object, code: Optional[CodeType]) -> int:
    """Id of a name for a whole function; 0 without a ring or room for the name."""
    names = runtime.names or runtime.open_names()
    return names.function_id(name, code) if names is not None else 0
