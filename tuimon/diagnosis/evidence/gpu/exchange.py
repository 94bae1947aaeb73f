"""Ranks compared on the clocks of their GPUs: how long they wait for one another and exchange gradients.

The exchange lies at the end of each backward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.evidence.gpu.steps import MIN_STEPS, GpuPhase, GpuSteps, has_enough_steps
from tuimon.diagnosis.interval import NONE, Interval
from tuimon.diagnosis.threshold import LARGE, MOST, TRACE, Threshold
from tuimon.node_ids import node_of
from tuimon.records import PHASES, GpuExchange
from tuimon.session.ranks import RankRow, RankTimes, split_ranks
from tuimon.session.rows import GpuTimeRow
from tuimon.session.threads import MainThread

BACKWARD_PER_FORWARD = Threshold(
    3.0,
    "times as long as forward that backward takes on a GPU at most, without waiting for other ranks",
    "twice the operations (https://epoch.ai/blog/backward-forward-FLOP-ratio), and once more where activation"
    " checkpointing recomputes the forward pass",
)
TOGETHER_MS = Threshold(
    1.0,
    "ms within which all ranks come out of one exchange of gradients",
    "our choice: NCCL's kernels end together, and a GPU's clock is known to some 0.05 ms of its node's",
)
#: Steps of two ranks that are further apart than this part of one are not the same step.
_SAME_STEP = 0.25
RestsOn = Literal["no_sync", "ranks", "forward"]


class Exchange(Struct, frozen=True, gc=False):
    """The time that one rank's GPU spends on other ranks at the end of its backward passes; shares of its step."""

    share: Interval
    waiting: float  # of that, for ranks that come later in the same step, at least
    rests_on: RestsOn  # which evidence gave the lower end of the share

    @property
    def is_uneven(self) -> bool:
        """True if most of it is waiting for ranks that come later, in each step others.

        Backward takes twice as long as forward, so who comes 1 ms later takes 2 ms more in backward, and of the 3 ms
        that others wait the ranks' spans show 1: a sixth of the exchange is half of it already.
        """
        return self.waiting > 0 and self.waiting >= LARGE * self.share.low


def exchanges(ranks: Mapping[int, GpuSteps]) -> dict[int, Exchange]:
    """The exchange of every rank, by pid; of one rank alone, what follows from its own times.

    Three lower bounds, the largest counts:

    - Passes between the first and the last of a step exchange nothing under ``no_sync()``: what the last takes longer
      than these is exchange. Without ``no_sync()`` all exchange, and the difference is 0.
    - Ranks come out of an exchange together. Who comes into it last has the shortest span, what others take longer
      they wait: with 50, 60 and 55 ms it is 0, 10 and 5. That holds where the ranks' own passes take alike; a rank that
      has more work comes later and takes longer, and it is less than the truth.
    - No backward pass takes more than ``BACKWARD_PER_FORWARD`` times what all forward passes of the step take.

    The time that backward may idle for want of launches counts for none of them.
    """
    step_ms = min((gpu.step_ms for gpu in ranks.values()), default=0.0)
    waiting_ms = waits_ms({pid: gpu.time.exchanges for pid, gpu in ranks.items()}, step_ms)
    return {pid: _exchange(gpu, waiting_ms.get(pid, 0.0)) for pid, gpu in ranks.items()}


def _exchange(gpu: GpuSteps, waiting_ms: float) -> Exchange:
    backward, known = gpu.phases.get("backward", GpuPhase(0.0, NONE)), gpu.time.accumulation
    longer_ms = 0.0
    if known is not None and known.steps >= MIN_STEPS:
        longer_ms = max(0.0, known.last_ns - known.own_ns) / known.steps / 1e6
    starved_ms = backward.idle.high
    waiting_ms = max(0.0, waiting_ms - starved_ms)
    bounds: dict[RestsOn, float] = {
        "no_sync": longer_ms - starved_ms,
        "ranks": waiting_ms,
        "forward": _own_work_exceeded_ms(gpu) - starved_ms,
    }
    by = max(bounds, key=bounds.__getitem__)
    at_least_ms, at_most_ms = max(0.0, bounds[by]), backward.ms - backward.idle.low
    if by == "no_sync" and at_least_ms >= TRACE * gpu.step_ms:  # else perhaps all passes exchange
        at_most_ms = min(at_most_ms, longer_ms + starved_ms)
    share = Interval(at_least_ms, max(at_least_ms, at_most_ms)).times(1.0 / gpu.step_ms)
    return Exchange(share, waiting_ms / gpu.step_ms, by)


def _own_work_exceeded_ms(gpu: GpuSteps) -> float:
    """By how much the last backward of a step is longer than its own work can be.

    With forward of 10 and 30 ms and backward of 70 and 60 that is 40 and 0, on average 20; of their means it is 5.
    If the forward pass of each step is not known, the mean has to do.
    """
    of_steps = gpu.time.exchanges
    if len(of_steps) < MIN_STEPS or "forward" not in gpu.phases:
        return 0.0
    most_ms = BACKWARD_PER_FORWARD * gpu.phases["forward"].ms
    by_steps = [
        max(0.0, exchange.backward_ns - BACKWARD_PER_FORWARD * exchange.forward_ns) / 1e6
        for exchange in of_steps
        if exchange.forward_ns is not None
    ]
    by_mean_ms = fmean(exchange.backward_ns for exchange in of_steps) / 1e6 - most_ms
    return max(by_mean_ms, fmean(by_steps) if len(by_steps) >= MIN_STEPS else 0.0)


def waits_ms(ranks: Mapping[int, Sequence[GpuExchange]], step_ms: float) -> dict[int, float]:
    """How long each rank waits for later ones, mean of a step, at least; empty where they do not exchange together.

    If a rank was not timed in a step, the last of the others stands for it: their waits are too short then.
    """
    steps = list(_same_steps(ranks, step_ms * _SAME_STEP / 1e3))
    ahead_s = _clocks_ahead_s(steps)
    together = []
    for step in steps:
        reached_s = [exchange.reached_s - ahead_s.get(node_of(pid), 0.0) for pid, exchange in step.items()]
        if max(reached_s) - min(reached_s) <= TOGETHER_MS / 1e3:
            together.append(step)
    if len(together) < MIN_STEPS or len(together) < MOST * len(steps):
        return {}
    waits: dict[int, list[float]] = defaultdict(list)
    for step in together:
        last_ns = min(exchange.span_ns for exchange in step.values())
        for pid, exchange in step.items():
            waits[pid].append((exchange.span_ns - last_ns) / 1e6)
    return {pid: fmean(found) for pid, found in waits.items() if len(found) >= MIN_STEPS}


def _same_steps(ranks: Mapping[int, Sequence[GpuExchange]], within_s: float) -> Iterable[dict[int, GpuExchange]]:
    """Exchanges of two ranks or more that belong to one step, by the clock."""
    ordered = sorted((exchange.reached_s, pid, exchange) for pid, found in ranks.items() for exchange in found)
    step: dict[int, GpuExchange] = {}
    since_s = 0.0
    for reached_s, pid, exchange in ordered:
        if step and (pid in step or reached_s - since_s > within_s):
            if len(step) > 1:
                yield step
            step = {}
        if not step:
            since_s = reached_s
        step[pid] = exchange
    if len(step) > 1:
        yield step


def _clocks_ahead_s(steps: Sequence[Mapping[int, GpuExchange]]) -> dict[int, float]:
    """How far the clock of each further node is ahead of the first one's, by the median step that both were timed in.

    If ranks exchange together, the difference is that of the clocks, and the same in each step.
    """
    first = min((node_of(pid) for step in steps for pid in step), default=0)
    found: dict[int, list[float]] = defaultdict(list)
    for step in steps:
        reached_s = {node_of(pid): exchange.reached_s for pid, exchange in step.items()}
        if first in reached_s and len(reached_s) > 1:
            for node, moment_s in reached_s.items():
                found[node].append(moment_s - reached_s[first])
    return {node: median(differences_s) for node, differences_s in found.items()}


def on_gpu_clock(rows: Sequence[RankRow], gpus: Mapping[int, GpuTimeRow | None]) -> tuple[RankRow, ...]:
    """The rows with GPU times, as far as all measured ranks have some; else as they are."""
    times: dict[int, RankTimes] = {}
    for row in rows:
        if row.late_ms is not None:
            known = _times(row, gpus.get(row.pid))
            if known is None:
                return tuple(rows)
            times[row.pid] = known
    splits = dict(zip(times, split_ranks(list(times.values())), strict=True))
    return tuple(
        row._replace(
            step_ms=(step_ms := times[row.pid].step_ms),
            phases=tuple((name, ms / step_ms) for name, ms in times[row.pid].ms.items()),
            wait_ms=None,
            waits=(),
            late_ms=splits[row.pid].late_ms,
            excess=tuple(splits[row.pid].excess_ms.items()),
        )
        if row.pid in times
        else row
        for row in rows
    )


def _times(row: RankRow, gpu: GpuTimeRow | None) -> RankTimes | None:
    """Times of a rank; None without GPU times of enough steps."""
    if gpu is None or not row.step_ms or not has_enough_steps(gpu.steps, gpu.timed_s):
        return None
    shares = {name: share for name in PHASES if (share := gpu.of(name)) is not None}
    ms = {name: share.span * row.step_ms for name, share in shares.items()}
    return RankTimes(ms, MainThread(), {}, on_gpu=True) if sum(ms.values()) > 0 else None
