"""Keeping our functions out of torch.compile's sight, without importing ``torch._dynamo`` (seconds)."""

import sys
from typing import Any


def skip(function: Any) -> None:
    """Have Dynamo leave this function's own frames alone when it meets one outside a traced region.

    What the function calls is treated as ever. Inside a traced region our functions ask ``runtime.is_compiling``
    first, which Dynamo takes for True, and so leave nothing to trace.
    """
    try:
        frames = sys.modules["torch"]._C._dynamo.eval_frame
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
        frames.set_code_exec_strategy(function.__code__, strategy)
    except Exception:  # older torch: has skip_code, or nothing
        _skip_code(function)


def _skip_code(function: Any) -> None:
    try:
        sys.modules["torch"]._C._dynamo.eval_frame.skip_code(function.__code__)
    except Exception:
        return
