"""Keeping our functions out of torch.compile's sight, without importing ``torch._dynamo`` (seconds)."""

import sys
from typing import Any


def skip(*functions: Any) -> None:
    """Have Dynamo leave these functions' own frames alone when it meets them outside a traced region.

    What they call (the user's own code) is treated as ever. Inside a traced region our functions ask
    ``runtime.is_compiling`` first, which Dynamo takes for True, and so leave nothing to trace.
    """
    for function in functions:
        _set_strategy(function, "DEFAULT")


def skip_with_callees(*functions: Any) -> None:
    """The same for functions that call nothing of the user's, and for all that they call."""
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
