"""Which phase a stack was sampled in, by its frames alone (the join by place)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tuimon.code_origin import is_import_system
from tuimon.records import Frame
from tuimon.torch_code import (
    is_backward_entry,
    is_fetch,
    is_module_body,
    is_module_run,
    is_optimizer_step,
    may_be_boundary,
)

#: ``rest``: in none of the marked boundaries and in no module; the loop's own lines decide (see ``loop_lines``).
StackPhase = Literal["data", "forward", "backward", "optimizer", "rest"]
FrameKind = Literal["fetch", "backward", "optimizer", "module", "import", "none"]


def frame_kind(frame: Frame) -> FrameKind:
    """Which boundary of the training loop a frame of torch or of our hooks is; ``import`` for the import system."""
    file, function = frame.file, frame.function
    if not frame.user and is_module_body(file, function):
        return "import"
    if not may_be_boundary(file):
        return "none"
    if is_import_system(file):
        return "import"
    if is_fetch(file, function):
        return "fetch"
    if is_backward_entry(file, function):
        return "backward"
    if is_optimizer_step(file, function):
        return "optimizer"
    return "module" if is_module_run(file, function) else "none"


def stack_phase(kinds: Sequence[FrameKind]) -> StackPhase:
    """The phase of a stack given the kinds of its frames, root first.

    The innermost boundary decides, as it does for markers: a module run by a checkpoint inside backward is backward, a
    module run by a closure inside an optimizer's step is forward. What an import runs is none of them.
    """
    module = False
    for depth in range(len(kinds) - 1, -1, -1):
        kind = kinds[depth]
        if kind == "none":
            continue
        if kind == "module":
            module = True
        elif kind == "import":
            return "rest"
        elif kind == "fetch":
            return "data"
        elif kind == "backward":
            return "backward"
        elif kind == "optimizer" and (not depth or kinds[depth - 1] != "import"):
            return "forward" if module else "optimizer"
    return "forward" if module else "rest"
