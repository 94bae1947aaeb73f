"""Has Dynamo (torch.compile) skip our functions, without importing ``torch._dynamo``, which takes seconds."""

import sys
from typing import Any


def skip(*functions: Any) -> None:
    """Have Dynamo skip these functions' own frames outside a traced region, but not what they call: the user's code.

    Inside a traced region our functions call ``runtime.is_compiling`` first, which Dynamo takes for True, and so leave
    nothing to trace.
    """
    for function in functions:
        _set_strategy(function, "DEFAULT")


def skip_with_callees(*functions: Any) -> None:
    """Have Dynamo skip these functions and all that they call, which is none of the user's code."""
    for function in functions:
        _set_strategy(function, "SKIP")


def _set_strategy(function: Any, callees: str) -> None:
    try:
        frames = sys.modules["torch"]._C._dynamo.eval_frame
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, getattr(action, callees))
        frames.set_code_exec_strategy(function.__code__, strategy)
    except Exception:  # older torch: has skip_code, or nothing
        _skip_code(function)


def _skip_code(function: Any) -> None:
    try:
        sys.modules["torch"]._C._dynamo.eval_frame.skip_code(function.__code__)
    except Exception:
        return
