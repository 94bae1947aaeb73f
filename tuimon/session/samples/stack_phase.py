"""Which phase a stack was sampled in, told by its frames alone (the join by place)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tuimon.records import Frame
from tuimon.torch_code import is_agent_file

#: ``rest``: in none of the marked boundaries and in no module; the loop's own lines decide (see ``hotspots``).
StackPhase = Literal["data", "forward", "backward", "optimizer", "rest"]
FrameKind = Literal["fetch", "backward", "optimizer", "module", "import", "none"]

#: The last two start an epoch's workers.
_FETCH_FUNCTIONS = frozenset({"__next__", "_next_data", "_get_iterator", "_reset"})
_BACKWARD_FILES = ("torch/autograd/__init__.py", "torch/autograd/graph.py", "torch/_tensor.py")
_BACKWARD_FUNCTIONS = frozenset({"backward", "grad", "_engine_run_backward"})
#: ``wrapper`` is what torch puts around every optimizer's ``step`` (``Optimizer.profile_hook_step``).
_OPTIMIZER_FUNCTIONS = frozenset({"step", "wrapper"})
#: A call of a module; not its construction or initialisation.
_MODULE_FUNCTIONS = frozenset({"_call_impl", "_wrapped_call_impl", "forward"})
_HOOKS: dict[str, FrameKind] = {
    "tuimon_fetch": "fetch",
    "tuimon_iter": "fetch",
    "tuimon_backward": "backward",
    "tuimon_scaler_step": "optimizer",
}


def frame_kind(frame: Frame) -> FrameKind:
    """What a frame of torch, of our hooks or of the import system says about the phase."""
    file, function = frame.file, frame.function
    if file.startswith("<frozen importlib"):
        return "import"
    if is_agent_file(file):
        return _HOOKS.get(function, "none")
    if "torch/" not in file:
        return "none"
    if file.endswith("torch/utils/data/dataloader.py"):
        return "fetch" if function in _FETCH_FUNCTIONS else "none"
    if file.endswith(_BACKWARD_FILES):
        return "backward" if function in _BACKWARD_FUNCTIONS else "none"
    if "torch/optim/" in file:
        scheduler = file.endswith(("lr_scheduler.py", "swa_utils.py"))
        return "optimizer" if function in _OPTIMIZER_FUNCTIONS and not scheduler else "none"
    if file.endswith("torch/nn/functional.py"):
        return "module"
    if "torch/nn/" in file:
        return "module" if function in _MODULE_FUNCTIONS else "none"
    return "none"


def stack_phase(kinds: Sequence[FrameKind]) -> StackPhase:
    """The phase of a stack given the kinds of its frames, root first.

    The innermost boundary decides, as it does for markers: a module run by a checkpoint inside backward is backward, a
    module run by a closure inside an optimizer's step is forward. What an import runs is none of them.
    """
    module = False
    for kind in reversed(kinds):
        if kind == "module":
            module = True
        elif kind == "import":
            return "rest"
        elif kind == "fetch":
            return "data"
        elif kind == "backward":
            return "backward"
        elif kind == "optimizer":
            return "forward" if module else "optimizer"
    return "forward" if module else "rest"
