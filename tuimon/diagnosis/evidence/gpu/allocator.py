"""Tests if torch's allocator holds the GPU up: returning memory to the driver waits for the GPU each time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, ThreadSamples
from tuimon.session.rows import TorchMemoryRow

#: Calls of cudaFree a step; each waits for all work of the GPU, and once its cache has filled a training makes none:
#: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#implicit-synchronization
_EVERY_STEP = 1.0


class AllocatorWaits(Struct, frozen=True, gc=False):
    """Why the allocator gives memory back, and the line that makes it do so, where there is one."""

    why: Literal["empty_cache", "no_cache", "fragmentation"]
    frees_per_step: float | None  # None where they are not counted
    hot: HotFunction | None


def allocator_waits(
    memory: Iterable[TorchMemoryRow], samples: ThreadSamples, step_ms: float, device: int
) -> AllocatorWaits | None:
    """Waits for the allocator; None where memory is given back in few steps, or that is unknown."""
    row = next((row for row in memory if row.device == device), None)
    emptying = samples.where(lambda sample: sample.calls("empty_cache"))
    hot = emptying.hottest
    frees = row.frees_per_s * step_ms / 1e3 if row is not None and row.frees_per_s is not None else None
    if hot is not None and emptying.total >= MIN_SAMPLES:
        return AllocatorWaits("empty_cache", frees, hot)
    if row is not None and row.allocated_bytes == 0:  # with caching, the model alone would be counted
        return AllocatorWaits("no_cache", None, None)
    return AllocatorWaits("fragmentation", frees, hot) if frees is not None and frees >= _EVERY_STEP else None


def advice(waits: AllocatorWaits, places: Sequence[str]) -> str:
    """The fix; ``places``: the line that empties the cache, for people."""
    if waits.why == "empty_cache":
        return f"leave out torch.cuda.empty_cache() at {places[0]}: torch reuses freed memory without it"
    if waits.why == "no_cache":
        return "unset PYTORCH_NO_CUDA_MEMORY_CACHING: torch then reuses freed memory instead of returning it"
    return (
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or use batches of similar length or a smaller batch:"
        " memory is fragmented, or nearly full"
    )
