"""What the training thread's samples show of the GPU: waits for it, copies to it, how work is queued for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.threshold import MIN_SAMPLES, MOST, SMALL, Threshold
from tuimon.records import Place, TraceTaken
from tuimon.session.rows import HotLine, LoaderRow, TorchMemoryRow
from tuimon.session.series import sampling_error
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node
from tuimon.text import code_place
from tuimon.torch_code import copies_nothing

#: Files of torch's own whose functions wait for values by themselves: torch.unique(x), F.one_hot(x).
_ARGUMENT_FILES = ("torch/functional.py", "torch/_tensor.py", "torch/nn/functional.py", "torch/_jit_internal.py")


def gpu_waits(samples: Samples, trace: TraceTaken | None = None) -> Samples | None:
    """Those of steps in which the training thread waits for a value of its GPU; None with too few in steps.

    ``trace``: the latest of the process, for lines whose syntax does not show that they wait.
    """
    steps = samples.in_steps
    return steps.where(awaits_gpu(samples, trace)) if steps.total >= 3 * MIN_SAMPLES else None


def awaits_gpu(samples: Samples, trace: TraceTaken | None = None) -> Callable[[Node], bool]:
    """True if the training thread reads a value there, or synchronises.

    It rests on the line's syntax: the same words on plain values take no time, and whatever the training thread is
    often sampled at waits. If the syntax shows nothing, it rests on a trace, in which the line mostly waits.
    """
    traced = _traced_lines(samples.in_steps, trace)

    def awaits(node: Node) -> bool:
        doing, leaf, place = node.activity, node.frame, node.place
        if not node.frames or doing in ("sync", "transfer"):
            return doing == "sync"
        if "scaler" in leaf.roles:
            return True
        is_known = leaf.user or leaf.file.endswith(_ARGUMENT_FILES)
        if doing not in ("python", "torch") or place is None or not is_known:
            return False
        if code_place(place.file, place.line) in traced:
            return True
        from tuimon.gpu_calls import sync_calls  # noqa: PLC0415  (loads a parser)

        calls = [call for call in sync_calls(place.source) if call.kind != "copy"]
        # inside another function, only a call that always waits
        return bool(calls) if leaf.user else any(call.is_certain and call.kind in ("shape", "mask") for call in calls)

    return awaits


def _traced_lines(samples: Samples, trace: TraceTaken | None) -> frozenset[str]:
    """The lines that wait in a trace for MOST of the time at least that they are sampled for."""
    if trace is None or not trace.syncs or trace.end_s <= trace.begin_s:
        return frozenset()
    waited = Counter[str]()
    for sync in trace.syncs:
        waited[_line(sync.where)] += sync.total_ns
    places = samples.counted(lambda row: (code_place(*row.node.place[:2]),) if row.node.place is not None else ())
    length_ns = (trace.end_s - trace.begin_s) * 1e9
    return frozenset(line for line, count in places.items() if waited[line] >= MOST * length_ns * count / samples.total)


def traced_waits(trace: TraceTaken | None, place: Place) -> dict[str, float]:
    """The waits at a line in a mean step, by the runtime's calls in a trace; empty if it shows none.

    Its lines were sampled, a thousand times a second at most: a short call may be counted at a neighbouring line.
    """
    line = code_place(place.file, place.line)
    rows = [row for row in trace.syncs if _line(row.where) == line] if trace is not None else []
    if trace is None or not rows:
        return {}
    steps = trace.steps or 1
    return {
        "waits_per_step": sum(row.count for row in rows) / steps,
        "waited_ms_per_step": sum(row.total_ns for row in rows) / steps / 1e6,
    }


def _line(where: str) -> str:
    """The line of a trace's row: ``train.py:44`` of ``main() train.py:44``."""
    return where.partition("() ")[2]


SMALL_PINNED_BYTES = Threshold(
    float(1 << 20),
    "bytes of pinned memory, up to which no copy of it takes long",
    "our choice: 0.1 ms over PCIe 3; torch itself pins a few bytes, through which item() reads its value"
    " (https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/CUDAScalar.cu)",
)
#: In these a thread calls nothing of CUDA.
_CALLS_NOTHING: frozenset[Activity] = frozenset(("data", "idle", "lock", "sleep", "import", "compile"))
PINNED_RATIO = Threshold(
    0.8,
    "share of a PCIe link's rate that copies of tens of MB between pinned memory and the GPU reach",
    "measured on an H100 over 16 lanes: 50 of 63 GB/s with PCIe 5; published: 12.2 of 15.75 with PCIe 3 (P100:"
    " https://github.com/mpicbg-scicomp/gearshifft/pull/82), 25.1 of 31.5 with PCIe 4 (A100:"
    " https://github.com/NVIDIA/nvbandwidth/issues/42)",
)
#: Bytes a second of one lane in one direction, by generation, without the line code (8b/10b, from 3 on 128b/130b, in 6
#: 14 of 256 bytes): https://en.wikipedia.org/wiki/PCI_Express#Comparison_table
_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}


def copying_upper_bound(samples: Samples, memory: Iterable[TorchMemoryRow]) -> float | None:
    """Share of all time; None with pinned memory, whose copies nobody waits for, or too few samples.

    Every sample counts in which the training thread may be in a call that copies: 40 of 1,000 are 4 %, and 5.4 % at
    most. A module's copy in its forward pass may come back in the backward pass, where samples do not show it.
    """
    pinned = [row.pinned_bytes for row in memory]
    if not pinned or any(count is None or count > SMALL_PINNED_BYTES for count in pinned):
        return None
    if samples.total < 3 * MIN_SAMPLES:
        return None
    copying = samples.where(
        lambda node: (
            bool(node.frames)
            and node.activity not in _CALLS_NOTHING
            and not copies_nothing(node.frame.file, node.frame.function.rpartition(".")[2])
        )
    )
    in_model = copying.where(lambda node: any("torch/nn/modules/" in f.file for f in node.frames), phase="forward")
    ratio = min(1.0, (copying.total + in_model.total) / samples.total)
    return min(1.0, ratio + sampling_error(max(ratio, 1.0 / samples.total), samples.total))


def bytes_per_step(loader: LoaderRow | None, step_ms: float | None) -> float | None:
    """Bytes that a step copies to the GPU of what its DataLoader gives; None where its batches are not measured.

    Those that come in the GPU's memory are copied elsewhere, by a library or a worker.
    """
    if loader is None or loader.batches is None or not loader.batches.on_cpu or not loader.fetches_per_s:
        return None
    return loader.batches.mean_bytes * loader.fetches_per_s * step_ms / 1e3 if step_ms else None


def pcie_bytes_per_s(generation: int | None, width: int | None) -> float | None:
    """Bytes a second that copies of pinned memory reach over a link of ``width`` lanes; None where either is unknown.

    PCIe 5 with 16 lanes: 3.938 GB/s x 16 x 0.8 = 50 GB/s. A superchip such as GH200 copies over NVLink-C2C, at more
    than 300 GB/s: https://github.com/NVIDIA/nvbandwidth/issues/23
    """
    lane = None if generation is None else _LANE_BYTES_PER_S.get(generation)
    return lane * width * PINNED_RATIO if lane is not None and width else None


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

    is_compiled: bool = False  # or replays CUDA graphs
    loop: HotLine | None = None  # in the model, which makes most of forward's launches
    calls_cell: bool = False  # that loop calls a recurrent cell for each step of time
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
    # the loops of functions that lead to backward are the training's
    training = samples.where(phase="backward").through
    looped = forward.where(
        lambda node: (line := node.user_line) is not None and line.loop and line.code not in training
    )
    has_loop = looped.total >= max(MIN_SAMPLES, MOST * forward.total)
    cells = looped.where(_calls_cell)
    calls_cell = has_loop and cells.total >= MOST * looped.total
    files = {frame.file for row in steps.rows for frame in row.node.frames}
    return Launching(
        is_compiled=forward.part(below="compiled_call") >= SMALL or steps.part(below="graph_replay") > 0,
        loop=(cells if calls_cell else looped).hottest() if has_loop else None,
        calls_cell=calls_cell,
        scaler=steps.part(lambda node: node.has("scaler") and not node.has("optimizer_code")),
        update=steps.part(phase="optimizer"),
        tensor_by_tensor=steps.part(below="one_tensor"),
        all_tensors_together=steps.part(below="foreach"),
        owner=next((name for name, file in _OWNERS if any(map(file.search, files))), None),
    )


def _calls_cell(node: Node) -> bool:
    line = node.user_line
    if line is None:
        return False
    return bool(_CELL_CALL.search(line.source) or (node.has("recurrent") and _ONE_AT_A_TIME.search(line.source)))
