"""The training thread's waits for its GPU, from its samples and a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import NamedTuple

from msgspec import Struct

from tuimon.diagnosis.threshold import MIN_SAMPLES, MOST
from tuimon.records import Place, TraceTaken
from tuimon.session.rows import HotLine
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node
from tuimon.text import code_place
from tuimon.torch_code import is_grad_scaler

#: Files of torch's own whose functions wait for values by themselves: torch.unique(x), F.one_hot(x).
_ARGUMENT_FILES = ("torch/functional.py", "torch/_tensor.py", "torch/nn/functional.py", "torch/_jit_internal.py")


class GpuWaits(Struct, frozen=True, gc=False):
    """Samples of the training thread in which it waits for its GPU; shares are of all its samples but evaluation's."""

    sync: float  # reads a value, or synchronises
    transfer: float  # moves a tensor
    hot_sync: HotLine | None
    hot_transfer: HotLine | None
    sync_by_phase: dict[str, float]  # reads values, or synchronises: while a copy waits, the GPU may have nothing to do
    samples: int  # all of them

    @property
    def share(self) -> float:
        """All waiting."""
        return self.sync + self.transfer

    @property
    def longest(self) -> LongestWait | None:
        """The line at which it waits longest, for a value or for a copy."""
        by_transfer = self.sync < self.transfer
        hot, share = (self.hot_transfer, self.transfer) if by_transfer else (self.hot_sync, self.sync)
        return LongestWait(hot, share, by_transfer) if hot is not None else None


class LongestWait(NamedTuple):
    """The line at which the training thread waits for the GPU, and the share of the time."""

    hot: HotLine
    share: float
    by_transfer: bool  # of a tensor that it moves; else to read a value, or to synchronise


class TracedWaits(NamedTuple):
    """Waits at one line in a trace, of a step in the mean."""

    per_step: float
    ms_per_step: float


def traced_waits(trace: TraceTaken | None, place: Place) -> TracedWaits | None:
    """The waits at a line, by the runtime's calls in a trace; None where it shows none.

    Its lines were sampled, a thousand times a second at most: a short call may be counted at a neighbouring line.
    """
    line = code_place(place.file, place.line)
    rows = [row for row in trace.syncs if _line(row.where) == line] if trace is not None else []
    if trace is None or not rows:
        return None
    steps = trace.steps or 1
    return TracedWaits(sum(row.count for row in rows) / steps, sum(row.total_ns for row in rows) / steps / 1e6)


def gpu_waits(samples: Samples, trace: TraceTaken | None = None) -> GpuWaits | None:
    """Waits for the GPU by samples; None with fewer than three times MIN_SAMPLES in steps.

    ``trace``: the latest of the process, for lines whose syntax does not show that they wait.
    """
    samples = samples.in_steps
    total = samples.total
    if total < 3 * MIN_SAMPLES:
        return None
    traced = _traced_lines(samples, trace)
    sync = samples.where(lambda node: _reads(node, traced))
    transfer = samples.where(doing="transfer")
    return GpuWaits(
        sync=sync.total / total,
        transfer=transfer.total / total,
        hot_sync=sync.hottest(),
        hot_transfer=transfer.hottest(),
        sync_by_phase={name: n / total for name, n in sync.phases.items()},
        samples=total,
    )


def _traced_lines(samples: Samples, trace: TraceTaken | None) -> frozenset[str]:
    """The lines that wait in a trace for MOST of the time at least that they are sampled for."""
    if trace is None or not trace.syncs or trace.end_s <= trace.begin_s:
        return frozenset()
    sampled, waited = Counter[str](), Counter[str]()
    for row in samples.rows:
        if row.node.place is not None:
            sampled[code_place(row.node.place.file, row.node.place.line)] += row.count
    for sync in trace.syncs:
        waited[_line(sync.where)] += sync.total_ns
    length_ns = (trace.end_s - trace.begin_s) * 1e9
    return frozenset(
        line for line, count in sampled.items() if waited[line] >= MOST * length_ns * count / samples.total
    )


def _line(where: str) -> str:
    """The line of a trace's row: ``train.py:44`` of ``main() train.py:44``."""
    return where.partition("() ")[2]


def _reads(node: Node, traced: Container[str]) -> bool:
    """True if it reads a value, or synchronises."""
    doing, leaf = node.activity, node.frame
    if not node.frames or doing in ("sync", "transfer"):
        return doing == "sync"
    if is_grad_scaler(leaf.file):
        return True
    if doing not in ("python", "torch") or not (leaf.user or leaf.file.endswith(_ARGUMENT_FILES)):
        return False
    return node.place is not None and _may_wait(node.place, traced, is_leaf=leaf.user)


def _may_wait(place: Place, traced: Container[str], *, is_leaf: bool) -> bool:
    """True if a call on a line may wait for the GPU; inside another function, only one that always does.

    It rests on the line's syntax: the same words on plain values take no time, and whatever the training thread is
    often sampled at waits. If the syntax shows nothing, it rests on a trace, in which the line mostly waits.
    """
    from tuimon.gpu_calls import sync_calls  # noqa: PLC0415  (loads a parser)

    if code_place(place.file, place.line) in traced:
        return True
    calls = [call for call in sync_calls(place.source) if call.kind != "copy"]
    return bool(calls) if is_leaf else any(call.is_certain and call.kind in ("shape", "mask") for call in calls)
