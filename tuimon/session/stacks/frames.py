"""A frame and its role in a training loop: a boundary of it, or code with some role that its names show."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from msgspec.structs import astuple

from tuimon.code_origin import is_import_system, is_library_file
from tuimon.library_code import (
    is_collector,
    is_environment,
    is_evaluator,
    is_generation,
    is_logging,
    is_metric,
    is_network,
    is_rollout_entry,
    may_be_loss,
)
from tuimon.records import Frame
from tuimon.torch_code import (
    collates,
    compiles,
    is_backward_entry,
    is_compiled_call,
    is_fetch,
    is_grad_scaler,
    is_gradient_call,
    is_graph_replay,
    is_model_upkeep,
    is_module_body,
    is_module_run,
    is_optimizer_step,
    is_recurrent_layer,
    is_torch_optimizer,
    marked_part,
    may_be_boundary,
    may_call_closure,
    saves_checkpoint,
)

#: ``rest``: in none of the marked boundaries and in no module; the loop's own lines decide (see ``loop``).
StackPhase = Literal["data", "forward", "backward", "optimizer", "rest"]
#: The phases in which gradients are made or used.
UPDATES: frozenset[StackPhase] = frozenset({"backward", "optimizer"})
FrameKind = Literal["fetch", "backward", "optimizer", "module", "compile", "import", "none"]
#: A function's file and its bare name.
Function = tuple[str, str]
#: A block of code without gradients: its file, first line and function; of a library's that evaluates the line is 0.
Block = tuple[str, int, str]
Role = Literal[
    "calls_closure",
    "collates",
    "collector",
    "compiled_call",
    "environment",
    "generates",
    "graph_replay",
    "library",
    "may_be_loss",
    "metric",
    "network",
    "optimizer_code",
    "recurrent",
    "returns_gradients",
    "saves",
    "scaler",
    "upkeep",
]


#: How many functions the roles are remembered for: a run has some hundreds.
_FUNCTIONS_HELD = 4096
#: By the names that libraries and torch give their files and functions.
_NAMED: tuple[tuple[Role, Callable[[str, str], bool]], ...] = (
    ("calls_closure", may_call_closure),
    ("collector", is_collector),  # makes data with a policy
    ("compiled_call", is_compiled_call),
    ("environment", is_environment),
    ("generates", is_generation),  # text, with a language model
    ("graph_replay", is_graph_replay),
    ("library", lambda file, function: is_library_file(file) and not is_rollout_entry(file, function)),  # not torch
    ("may_be_loss", lambda file, _: may_be_loss(file)),
    ("metric", lambda file, function: is_metric(file) or is_logging(file, function)),
    ("network", lambda file, _: is_network(file)),
    ("optimizer_code", lambda file, _: is_torch_optimizer(file)),
    ("recurrent", lambda file, _: is_recurrent_layer(file)),
    ("returns_gradients", is_gradient_call),
    ("saves", saves_checkpoint),
    ("scaler", lambda file, _: is_grad_scaler(file)),
    ("upkeep", is_model_upkeep),
)


@lru_cache(_FUNCTIONS_HELD)
def _named(file: str, function: str) -> frozenset[Role]:
    found: set[Role] = {role for role, has_it in _NAMED if has_it(file, function)}
    return frozenset(found - {"library"} if marked_part(file) else found)  # a part of torch that the views name


def frame_kind(frame: Frame) -> FrameKind:
    """Which boundary of the training loop a frame of torch or of our hooks is; ``import`` for the import system."""
    file, function = frame.file, frame.function
    if not frame.user and is_module_body(file, function):
        return "import"
    if compiles(file, function):
        return "compile"
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


class KnownFrame(Frame, frozen=True, gc=False, eq=False, kw_only=True):
    """A frame, and what it is in a training loop; there is one for each id, so that equal ones are the same."""

    code: Function
    kind: FrameKind = "none"
    roles: frozenset[Role] = frozenset()
    block: Block | None = None

    @classmethod
    def of(cls, frame: Frame) -> KnownFrame:
        """The facts known of a frame: by its names, by whose code it is, and by the text of its line."""
        file, function = code = frame.file, frame.function
        roles, block = _named(file, function), None
        if frame.user:
            roles -= {"library"}
        if collates(file, function, frame.source):
            roles |= {"collates"}
        if frame.no_grad is not None or is_evaluator(file, function):
            block = file, frame.no_grad[0] if frame.no_grad is not None else 0, function
        return cls(*astuple(frame), code=code, kind=frame_kind(frame), roles=roles, block=block)


#: A frame of which nothing is known.
UNKNOWN = KnownFrame("", 0, "?", code=("", "?"))
