"""The rule about what ranks spend on communication."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.steps import GpuSteps
from tuimon.diagnosis.evidence.lines import HotFunction, hottest_place
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.needs import RANKS, SAMPLES
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.speedup import speedup
from tuimon.diagnosis.step_model.measured import host_model
from tuimon.diagnosis.threshold import TENSORBOARD, Threshold
from tuimon.diagnosis.words import at, percent

COMM_SHARE = Threshold(0.10, "share of the step in communication, from which it is a warning", TENSORBOARD)
BACKWARD_PER_FORWARD = Threshold(
    3.0,
    "times as long as forward that backward takes on a GPU at most, without waiting for other ranks",
    "twice the operations (https://epoch.ai/blog/backward-forward-FLOP-ratio), and once more where activation"
    " checkpointing recomputes the forward pass",
)
_WAITS = ("data", "idle", "io", "lock", "sleep", "sync")


class _Communication(NamedTuple):
    """What one rank spends on communication; shares are of its time."""

    called: float  # samples in torch.distributed
    in_backward: float  # backward that waits: on the CPU neither running nor runnable, on a GPU longer than its work
    hot: HotFunction | None
    estimated: bool = False  # from the length of backward on a GPU

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
    whole = len(measured) == process.world_size and not least.estimated
    model = host_model(evidence)
    best, *others = model.less(
        "talk less often or less: gradient accumulation with no_sync(), a larger batch per rank,"
        " gradient_as_bucket_view, a bf16 compression hook; NCCL instead of gloo where there are GPUs",
        "an exchange every second batch: no_sync() in the other",
        "communication",
        model.own_part(share if whole else 0.0),
    )
    return Finding(
        rule="comm_bound",
        severity="warning",
        headline=_headline(least, process.world_size or 1),
        action=best.action,
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "calls_share": least.called,
            "waiting_in_backward_share": least.in_backward,
            "ranks_measured": len(measured),
            "world_size": process.world_size,
            **({"speedup_at_most": speedup(1.0 - share)} if least.estimated else {}),
        },
        estimated_speedup=best.estimated_speedup,
        speedup_at_least=best.low,
        change=best.change,
        other_fixes=tuple(others),
    )


def _headline(least: _Communication, ranks: int) -> str:
    if least.estimated:
        return (
            f"about {percent(least.share)} of every step the GPU waits for the other ranks inside backward, which takes"
            " longer than its own work can"
        )
    place = f", at {at(least.hot.place)}" if least.hot else ", inside backward"
    return f"{percent(least.share)} of every step goes to communication between {ranks} ranks{place}"


def _communication(rank: Evidence) -> _Communication | None:
    """None with too few samples, or where it is unknown how much the training thread runs."""
    total = rank.stacks.main.total
    if total < 3 * MIN_SAMPLES:
        return None
    stacks = rank.stacks.main.stacks
    calls = [stack for stack in stacks if stack.activity == "ranks" and stack.phase != "backward"]
    called = sum(stack.count for stack in calls)
    waiting = sum(stack.count for stack in stacks if stack.activity in _WAITS)
    on_gpu = rank.uses_gpu is not False
    in_backward = _longer_on_gpu(rank.gpu_steps) if on_gpu else _idle_in_backward(rank, (called + waiting) / total)
    if in_backward is None:
        return None
    hot = hottest_place((stack.place, stack.count) for stack in calls) if called >= in_backward * total else None
    return _Communication(called / total, in_backward, hot, estimated=on_gpu and in_backward > called / total)


def _idle_in_backward(rank: Evidence, elsewhere: float) -> float | None:
    """Share of time that DistributedDataParallel waits for its all-reduce on the CPU."""
    main, backward = rank.training_thread, rank.phase("backward")
    if main.cpu_ratio is None or main.delay_ratio is None or backward is None:
        return None
    return max(0.0, min(backward.share, 1.0 - main.cpu_ratio - main.delay_ratio - elsewhere))


def _longer_on_gpu(gpu: GpuSteps | None) -> float:
    """Share of the step by which backward is longer on the GPU than its own work can be.

    Its queue waits for the all-reduce of other ranks there, while the CPU has gone on. What the GPU may idle in it for
    want of launches does not count.
    """
    if gpu is None or "forward" not in gpu.phases or "backward" not in gpu.phases:
        return 0.0
    backward = gpu.phases["backward"]
    own_ms = BACKWARD_PER_FORWARD * gpu.phases["forward"].ms
    return max(0.0, backward.ms - backward.idle_ms_at_most - own_ms) / gpu.step_ms


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
            " does not wait for, it rests on the length of backward on the GPU, beyond three times that of forward; it"
            " is an estimate then."
        ),
        needs=(RANKS, SAMPLES),
        thresholds=(COMM_SHARE, MIN_SAMPLES, BACKWARD_PER_FORWARD),
        contradicts_order=True,
    ),
)
