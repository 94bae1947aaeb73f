"""The rule about what ranks spend on communication."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import HotFunction, hottest_place
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.needs import RANKS, SAMPLES
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.speedup import speedup
from tuimon.diagnosis.threshold import TENSORBOARD, Threshold
from tuimon.diagnosis.words import at, percent

COMM_SHARE = Threshold(0.10, "share of the step in communication, from which it is a warning", TENSORBOARD)
COMM_CRITICAL = Threshold(
    0.30,
    "share of the step in communication, from which it is critical",
    "our choice: above the 20 % of a critical finding, as some communication always remains",
)
_WAITS = ("data", "idle", "io", "lock", "sleep", "sync")


class _Communication(NamedTuple):
    """What one rank spends on communication; shares are of its time."""

    called: float  # samples in torch.distributed
    in_backward: float  # backward in which the training thread neither runs nor waits for a core
    hot: HotFunction | None

    @property
    def share(self) -> float:
        return min(1.0, self.called + self.in_backward)


def comm_bound(evidence: Evidence) -> Finding | None:
    """Ranks spend their steps on exchanging gradients or other tensors.

    The rank that waits least counts: what others wait longer, they wait for it (``straggler_rank``).
    """
    process = evidence.process
    if process is None or (process.world_size or 1) < 2:
        return None
    measured = [found for rank in evidence.ranks if (found := _communication(rank)) is not None]
    if not measured:
        return None
    least = min(measured, key=lambda rank: rank.share)
    share, hot = least.share, least.hot
    if share < COMM_SHARE:
        return None
    return Finding(
        rule="comm_bound",
        severity="critical" if share >= COMM_CRITICAL else "warning",
        headline=(
            f"{percent(share)} of every step goes to communication between {process.world_size} ranks"
            f"{f', at {at(hot.place)}' if hot else ', inside backward'}"
        ),
        action=(
            "talk less often or less: gradient accumulation with no_sync(), a larger batch per rank,"
            " gradient_as_bucket_view, a bf16 compression hook; NCCL instead of gloo where there are GPUs"
        ),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "calls_share": least.called,
            "waiting_in_backward_share": least.in_backward,
            "ranks_measured": len(measured),
            "world_size": process.world_size,
        },
        estimated_speedup=speedup(1.0 - share) if len(measured) == process.world_size else None,
    )


def _communication(rank: Evidence) -> _Communication | None:
    """None with too few samples, or where it is unknown how much the training thread runs."""
    total = rank.stacks.main.total
    if total < 3 * MIN_SAMPLES:
        return None
    stacks = rank.stacks.main.stacks
    calls = [stack for stack in stacks if stack.activity == "ranks" and stack.phase != "backward"]
    called = sum(stack.count for stack in calls)
    waiting = sum(stack.count for stack in stacks if stack.activity in _WAITS)
    in_backward = _idle_in_backward(rank, (called + waiting) / total)
    if in_backward is None:
        return None
    hot = hottest_place((stack.place, stack.count) for stack in calls) if called >= in_backward * total else None
    return _Communication(called / total, in_backward, hot)


def _idle_in_backward(rank: Evidence, elsewhere: float) -> float | None:
    """Share of time that DistributedDataParallel waits for its all-reduce; 0 with a GPU, where the CPU does not."""
    if rank.uses_gpu is not False:
        return 0.0
    main, backward = rank.training_thread, rank.phase("backward")
    if main.cpu_ratio is None or main.delay_ratio is None or backward is None:
        return None
    return max(0.0, min(backward.share, 1.0 - main.cpu_ratio - main.delay_ratio - elsewhere))


RULES = (
    Rule(
        name="comm_bound",
        title="Communication between ranks",
        order=90,
        judge=comm_bound,
        explanation=(
            "Ranks spend their steps on exchanging gradients or other tensors. It rests on samples in"
            " torch.distributed, and on time inside backward in which the training thread neither computes nor waits"
            " for a core: there DistributedDataParallel waits for its all-reduce. With GPUs, whose collectives the CPU"
            " does not wait for, only samples count."
        ),
        needs=(RANKS, SAMPLES),
        thresholds=(COMM_SHARE, COMM_CRITICAL, MIN_SAMPLES),
        contradicts_order=True,
    ),
)
