"""How fast a PCIe link copies, and how long copies between host and GPU take at most.

While no memory is pinned, the CPU waits for them, and samples show it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuimon.diagnosis.threshold import MIN_SAMPLES, Threshold
from tuimon.session.rows import LoaderRow, TorchMemoryRow
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node
from tuimon.session.windows import sampling_error
from tuimon.torch_code import copies_nothing

SMALL_PINNED_BYTES = Threshold(
    float(1 << 20),
    "bytes of pinned memory, up to which no copy of it takes long",
    "our choice: 0.1 ms over PCIe 3; torch itself pins a few bytes, through which item() reads its value"
    " (https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/CUDAScalar.cu)",
)
SLOW_COPY = Threshold(
    2e9,
    "bytes a second, below which no copy over PCIe goes",
    "our choice, half of what pageable memory reaches on PCIe 3 (4 GB/s:"
    " https://developer.nvidia.com/blog/how-optimize-data-transfers-cuda-cc/)",
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
    copying = samples.where(_may_copy)
    counted = copying.total + copying.where(_is_in_module, phase="forward").total
    ratio = min(1.0, counted / samples.total)
    return min(1.0, ratio + sampling_error(max(ratio, 1.0 / samples.total), samples.total))


def _may_copy(node: Node) -> bool:
    if node.activity in _CALLS_NOTHING or not node.frames:
        return False
    leaf = node.frame
    return not copies_nothing(leaf.file, leaf.function.rpartition(".")[2])


def _is_in_module(node: Node) -> bool:
    return any("torch/nn/modules/" in frame.file for frame in node.frames)


def bytes_per_step(loader: LoaderRow | None, step_ms: float | None) -> float | None:
    """Bytes that a step copies to the GPU of what its DataLoader gives; None where its batches are not measured.

    Those that come in the GPU's memory are copied elsewhere, by a library or a worker.
    """
    per_second = _bytes_per_second(loader)
    return per_second * step_ms / 1e3 if per_second is not None and step_ms else None


def copying_by_bytes(loader: LoaderRow | None) -> float | None:
    """Share of all time in copies of its batches to the GPU, at most; None where they are not measured."""
    per_second = _bytes_per_second(loader)
    return min(1.0, per_second / SLOW_COPY) if per_second is not None else None


def _bytes_per_second(loader: LoaderRow | None) -> float | None:
    if loader is None or loader.batches is None or not loader.batches.on_cpu or not loader.fetches_per_s:
        return None
    return loader.batches.mean_bytes * loader.fetches_per_s


def pcie_bytes_per_s(generation: int | None, width: int | None) -> float | None:
    """Bytes a second that copies of pinned memory reach over a link of ``width`` lanes; None where either is unknown.

    PCIe 5 with 16 lanes: 3.938 GB/s x 16 x 0.8 = 50 GB/s. A superchip such as GH200 copies over NVLink-C2C, at more
    than 300 GB/s: https://github.com/NVIDIA/nvbandwidth/issues/23
    """
    lane = None if generation is None else _LANE_BYTES_PER_S.get(generation)
    return lane * width * PINNED_RATIO if lane is not None and width else None
