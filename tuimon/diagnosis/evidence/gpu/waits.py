"""Where the training thread waits for its GPU, from its samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.evidence.lines import HotFunction, hottest_place
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, StackSample, ThreadSamples
from tuimon.torch_code import is_grad_scaler

#: Files of torch's own whose functions wait for values by themselves: torch.unique(x), F.one_hot(x).
_ARGUMENT_FILES = ("torch/functional.py", "torch/_tensor.py", "torch/nn/functional.py", "torch/_jit_internal.py")


class GpuWaits(Struct, frozen=True, gc=False):
    """Samples of the training thread in which it waits for its GPU; shares are of all its samples but evaluation's."""

    sync: float  # reads a value, or synchronises
    transfer: float  # moves a tensor
    hot_sync: HotFunction | None
    hot_transfer: HotFunction | None
    sync_by_phase: dict[str, float]  # reads values, or synchronises: while a copy waits, the GPU may have nothing to do
    samples: int  # all of them

    @property
    def share(self) -> float:
        """All waiting."""
        return self.sync + self.transfer


def gpu_waits(samples: ThreadSamples) -> GpuWaits | None:
    """Waits for the GPU by samples; None with fewer than three times MIN_SAMPLES in steps."""
    samples = samples.in_steps
    total = samples.total
    if total < 3 * MIN_SAMPLES:
        return None
    by_kind: dict[str, list[StackSample]] = {"sync": [], "transfer": []}
    for sample in samples.stacks:
        kind = _wait_of(sample)
        if kind is not None:
            by_kind[kind].append(sample)
    sync, transfer = by_kind["sync"], by_kind["transfer"]
    by_phase: Counter[str] = Counter()
    for sample in sync:
        by_phase[sample.phase] += sample.count
    return GpuWaits(
        sync=sum(s.count for s in sync) / total,
        transfer=sum(s.count for s in transfer) / total,
        hot_sync=_hottest(sync),
        hot_transfer=_hottest(transfer),
        sync_by_phase={name: n / total for name, n in by_phase.items()},
        samples=total,
    )


def _wait_of(sample: StackSample) -> Literal["sync", "transfer"] | None:
    doing = sample.activity
    if doing == "transfer":
        return "transfer"
    if doing == "sync":
        return "sync"
    leaf = sample.frames[-1] if sample.frames else None
    if leaf is None:
        return None
    if is_grad_scaler(leaf.file):
        return "sync"
    if doing not in ("python", "torch") or not (leaf.user or leaf.file.endswith(_ARGUMENT_FILES)):
        return None
    return "sync" if sample.place is not None and _may_wait(sample.place.source, leaf.user) else None


def _may_wait(source: str, is_leaf: bool) -> bool:
    """Whether a call on a line may wait for the GPU; inside another function, only one that always does.

    The same words on plain values take no time: whatever the training thread is often sampled at waits.
    """
    from tuimon.gpu_calls import sync_calls  # noqa: PLC0415  (loads a parser)

    calls = [call for call in sync_calls(source) if call.kind != "copy"]
    return bool(calls) if is_leaf else any(call.is_certain and call.kind in ("shape", "mask") for call in calls)


def _hottest(samples: Sequence[StackSample]) -> HotFunction | None:
    return hottest_place((sample.place, sample.count) for sample in samples)
