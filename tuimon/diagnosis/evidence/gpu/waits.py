"""Where the training thread waits for its GPU, from its samples."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.evidence.lines import HotFunction, hottest_place
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, StackSample, ThreadSamples
from tuimon.torch_code import is_grad_scaler

#: Lines that read a tensor's value, beside the calls that ``activity_of`` knows. The same words on plain numbers
#: take no time: whatever the training thread is often sampled at waits.
_READS_VALUE = re.compile(
    r"\b(?:if|elif|while|assert)\b.*(?:[<>]|[=!]=|\bnot\b)"
    r"|\b(?:float|int|bool|print)\(|\bis(?:nan|inf|finite)\(|\.(?:any|all)\(\)|\b(?:np|numpy)\.asarray\("
)


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
    if leaf.user and doing in ("python", "torch") and _READS_VALUE.search(leaf.source):
        return "sync"
    return "sync" if is_grad_scaler(leaf.file) else None


def _hottest(samples: Sequence[StackSample]) -> HotFunction | None:
    return hottest_place((sample.place, sample.count) for sample in samples)
