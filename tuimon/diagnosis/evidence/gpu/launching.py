"""Why a loop launches so much: what its samples show of how it queues work for the GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.threshold import MIN_SAMPLES, MOST, SMALL
from tuimon.session.rows import HotLine
from tuimon.session.stacks.frames import Function
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node
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
    cells: HotLine | None = None  # calls a recurrent cell for each step of time
    loop: HotLine | None = None  # otherwise a loop in the model that makes most of forward's launches
    scaler: float = 0.0  # GradScaler's own work and waits
    update: float = 0.0  # the optimizer's phase
    tensor_by_tensor: float = 0.0  # of that, where it goes through tensors one by one
    all_tensors_together: float = 0.0  # and where each part of it is an operation on all of them
    owner: Owner | None = None  # the library that owns the loop, whose options the advice names


def launching(samples: Samples) -> Launching:
    """The facts that samples of the training thread show; none with too few of them."""
    steps = samples.in_steps
    if steps.total < MIN_SAMPLES:
        return Launching()
    forward = steps.where(phase="forward")
    compiled = forward.share(_passes(is_compiled_call)) or 0.0
    # the loops of functions that lead to backward are the training's
    training = samples.where(phase="backward").through
    looped = forward.where(lambda node: _is_in_models_loop(node, training))
    has_loop = looped.total >= max(MIN_SAMPLES, MOST * forward.total)
    cells = looped.where(_calls_cell)
    by_cells = has_loop and cells.total >= MOST * looped.total
    files = {frame.file for row in steps.rows for frame in row.node.frames}
    return Launching(
        is_compiled=compiled >= SMALL,
        is_graphed=steps.part(_passes(is_graph_replay)) > 0,
        cells=cells.hottest() if by_cells else None,
        loop=looped.hottest() if has_loop and not by_cells else None,
        scaler=steps.share(_is_scalers_own) or 0.0,
        update=steps.part(phase="optimizer"),
        tensor_by_tensor=steps.share(_passes(is_single_tensor_update)) or 0.0,
        all_tensors_together=steps.share(_passes(is_foreach_update)) or 0.0,
        owner=next((name for name, file in _OWNERS if any(map(file.search, files))), None),
    )


def _passes(is_one: Callable[[str, str], bool]) -> Callable[[Node], bool]:
    return lambda node: any(is_one(frame.file, frame.function) for frame in node.frames)


def _is_scalers_own(node: Node) -> bool:
    """True if GradScaler works or waits, and not the optimizer that it calls."""
    files = [frame.file for frame in node.frames]
    return any(map(is_grad_scaler, files)) and not any(map(is_torch_optimizer, files))


def _is_in_models_loop(node: Node, training: Container[Function]) -> bool:
    """True if the innermost user line is in a loop that is not the training's: of a function that calls no backward."""
    line = node.user_line
    return line is not None and line.loop and line.code not in training


def _calls_cell(node: Node) -> bool:
    line = node.user_line
    if line is None:
        return False
    in_layer = any(is_recurrent_layer(frame.file) for frame in node.frames)
    return bool(_CELL_CALL.search(line.source)) or (in_layer and bool(_ONE_AT_A_TIME.search(line.source)))
