"""Has Dynamo (torch.compile) skip our functions, without importing ``torch._dynamo``, which takes seconds."""

import sys
from typing import Any, Callable

from ..outside import attempt


def skip(*functions: Any, callees: str = "DEFAULT") -> None:
    """Have Dynamo skip these functions' own frames outside a traced region, but not what they call: the user's code."""
    for function in functions:
        attempt(_mark, function, callees)


def trace_instead(ours: Any, plain: Any) -> None:
    """Have Dynamo trace another function inside a traced region, by an attribute that torch's own wrappers have.

    To call ``torch.compiler.is_dynamo_compiling`` in a hook takes a third of what counting a step does.
    """
    ours._torchdynamo_inline = plain
    skip(ours)


def skip_with_callees(*functions: Any) -> None:
    """Have Dynamo skip these functions and all that they call, which is none of the user's code."""
    skip(*functions, callees="SKIP")


def skip_own_functions() -> None:
    """Have Dynamo skip all functions of the agent's loaded modules, and the functions they call."""
    attempt(_skip_own_functions)


def dispatch_modes() -> Callable[[], int]:
    """A function that counts the modes of torch that the calling thread is in; 0: torch traces nothing in it."""
    found: Callable[[], int] = getattr(vars(sys.modules["torch"]).get("_C"), "_len_torch_dispatch_stack", int)
    return found  # an old torch has none, and traces in other ways


def is_tracing() -> bool:
    """True in a thread in which torch traces a model.

    AOTAutograd runs a backward pass of fake tensors at a model's first call, also if none will ever follow.
    """
    state = getattr(sys.modules.get("torch._guards"), "_TLS", None)
    return getattr(state, "tracing_context", None) is not None


def _skip_own_functions() -> None:
    package = __name__.rpartition(".")[0].rpartition(".")[0] + "."
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            for value in list(vars(module).values()):
                for each in list(vars(value).values()) if isinstance(value, type) else [value]:
                    if getattr(each, "__globals__", None) is vars(module):
                        _mark(each, "SKIP")


def _mark(function: Any, callees: str) -> None:
    # not by ``torch._C``: Python 3.13 words the error for a missing name in Python, where an error of a handler is lost
    frames = vars(sys.modules["torch"])["_C"]._dynamo.eval_frame
    if not hasattr(frames, "set_code_exec_strategy"):
        frames.skip_code(function.__code__)
        return
    action = frames._FrameAction
    strategy = frames._FrameExecStrategy(action.SKIP, getattr(action, callees))
    frames.set_code_exec_strategy(function.__code__, strategy)
