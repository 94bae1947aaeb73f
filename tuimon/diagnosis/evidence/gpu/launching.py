"""Why a loop launches so much: what its samples show of how it queues work for the GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, ThreadSamples
from tuimon.diagnosis.threshold import MOST, SMALL
from tuimon.session.loop_tree.frame_table import Function
from tuimon.session.loop_tree.stacks import StackSample
from tuimon.torch_code import (
    is_compiled_call,
    is_foreach_update,
    is_grad_scaler,
    is_graph_replay,
    is_recurrent_layer,
    is_single_tensor_update,
    is_torch_optimizer,
)

#: A cell that is called for each step of time, or an operation on one step's part of a tensor.
_CELL_CALL = re.compile(r"[cC]ell\w*\(")
_ONE_AT_A_TIME = re.compile(r"\[\s*(?:(?::|\.\.\.)\s*,\s*)*[a-z]\w*\s*(?:,\s*:\s*)*\]")

Owner = Literal["transformers", "lightning"]
_OWNERS: tuple[tuple[Owner, re.Pattern[str]], ...] = (
    ("transformers", re.compile(r"/transformers/trainer\.py$")),
    ("lightning", re.compile(r"/(?:lightning|pytorch_lightning)/(?:\w+/)*loops/")),
)


class Launching(Struct, frozen=True, gc=False):
    """How a training queues its work; shares are of the step."""

    is_compiled: bool = False
    is_graphed: bool = False  # replays CUDA graphs
    cells: HotFunction | None = None  # calls a recurrent cell for each step of time
    loop: HotFunction | None = None  # otherwise a loop in the model that makes most of forward's launches
    scaler: float = 0.0  # GradScaler's own work and waits
    update: float = 0.0  # the optimizer's phase
    tensor_by_tensor: float = 0.0  # of that, where it goes through tensors one by one
    all_tensors_together: float = 0.0  # and where each part of it is an operation on all of them
    owner: Owner | None = None  # the library that owns the loop, whose options the advice names


def launching(samples: ThreadSamples) -> Launching:
    """The facts that samples of the training thread show; none with too few of them."""
    steps = samples.in_steps
    if steps.total < MIN_SAMPLES:
        return Launching()
    forward = steps.in_phase("forward")
    compiled = forward.share_where(_passes(is_compiled_call)) or 0.0
    # the loops of functions that lead to backward are the training's
    training = frozenset[Function]().union(*(stack.functions for stack in samples.in_phase("backward").stacks))
    looped = forward.where(lambda stack: _is_in_models_loop(stack, training))
    has_loop = looped.total >= max(MIN_SAMPLES, MOST * forward.total)
    cells = looped.where(_calls_cell)
    by_cells = has_loop and cells.total >= MOST * looped.total
    files = {frame.file for stack in steps.stacks for frame in stack.frames}
    return Launching(
        is_compiled=compiled >= SMALL,
        is_graphed=any(_passes(is_graph_replay)(stack) for stack in steps.stacks),
        cells=cells.hottest if by_cells else None,
        loop=looped.hottest if has_loop and not by_cells else None,
        scaler=steps.share_where(_is_scalers_own) or 0.0,
        update=steps.share_where(lambda stack: stack.phase == "optimizer") or 0.0,
        tensor_by_tensor=steps.share_where(_passes(is_single_tensor_update)) or 0.0,
        all_tensors_together=steps.share_where(_passes(is_foreach_update)) or 0.0,
        owner=next((name for name, file in _OWNERS if any(map(file.search, files))), None),
    )


def _passes(is_one: Callable[[str, str], bool]) -> Callable[[StackSample], bool]:
    return lambda stack: any(is_one(frame.file, frame.function) for frame in stack.frames)


def _is_scalers_own(stack: StackSample) -> bool:
    """True if GradScaler works or waits, and not the optimizer that it calls."""
    files = [frame.file for frame in stack.frames]
    return any(map(is_grad_scaler, files)) and not any(map(is_torch_optimizer, files))


def _is_in_models_loop(stack: StackSample, training: Container[Function]) -> bool:
    """True if the innermost user line is in a loop that is not the training's: of a function that calls no backward."""
    leaf = next((frame for frame in reversed(stack.frames) if frame.user), None)
    return leaf is not None and leaf.loop and (leaf.file, leaf.function) not in training


def _calls_cell(stack: StackSample) -> bool:
    leaf = next((frame for frame in reversed(stack.frames) if frame.user), None)
    if leaf is None:
        return False
    in_layer = any(is_recurrent_layer(frame.file) for frame in stack.frames)
    return bool(_CELL_CALL.search(leaf.source)) or (in_layer and bool(_ONE_AT_A_TIME.search(leaf.source)))
