"""Which phase a stack was sampled in, told by its frames alone (the join by place)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tuimon.records import Frame

#: ``rest``: in none of the marked boundaries and in no module; the loop's own lines decide (see ``hotspots``).
StackPhase = Literal["data", "forward", "backward", "optimizer", "rest"]
FrameKind = Literal["fetch", "backward", "optimizer", "module", "none"]

_BACKWARD_FILES = ("torch/autograd/__init__.py", "torch/autograd/graph.py", "torch/_tensor.py")
_BACKWARD_FUNCTIONS = frozenset({"backward", "grad", "_engine_run_backward", "tuimon_backward"})
_MODULE_PARTS = ("torch/nn/modules/", "torch/nn/functional.py", "torch/nn/parallel/", "torch/nn/init.py")

_HOOKS: dict[str, FrameKind] = {
    "tuimon_fetch": "fetch",
    "tuimon_backward": "backward",
    "tuimon_scaler_step": "optimizer",
}


def frame_kind(frame: Frame) -> FrameKind:
    """What a frame of torch or of our hooks says about the phase."""
    file, function = frame.file, frame.function
    if "torch/" in file:
        if file.endswith("torch/utils/data/dataloader.py"):
            return "fetch" if function in ("__next__", "_next_data") else "none"
        if file.endswith(_BACKWARD_FILES):
            return "backward" if function in _BACKWARD_FUNCTIONS else "none"
        if "torch/optim/" in file and not file.endswith("lr_scheduler.py") and function != "zero_grad":
            return "optimizer"
        if any(part in file for part in _MODULE_PARTS):
            return "module"
    if "tuimon/target/" in file:
        return _HOOKS.get(function, "none")
    return "none"


def stack_phase(kinds: Sequence[FrameKind]) -> StackPhase:
    """The phase of a stack given the kinds of its frames, root first.

    The innermost boundary decides, as it does for markers: a module run by a checkpoint inside backward is backward, a
    module run by a closure inside an optimizer's step is forward.
    """
    module = False
    for kind in reversed(kinds):
        if kind == "module":
            module = True
        elif kind == "fetch":
            return "data"
        elif kind == "backward":
            return "backward"
        elif kind == "optimizer":
            return "forward" if module else "optimizer"
    return "forward" if module else "rest"
