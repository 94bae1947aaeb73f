"""Ranks compared with each other: which of them delay the others, and how long the exchange of gradients takes.

The exchange lies at the end of each backward pass; on GPUs, their clocks show how long it takes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.evidence.course import TimeGrowth, grow_together
from tuimon.diagnosis.evidence.gpu import MIN_STEPS, SLOW_PCIE, GpuSteps, has_enough_steps
from tuimon.diagnosis.evidence.run import ALIKE
from tuimon.interval import Interval
from tuimon.node_ids import node_of
from tuimon.records import PASSES, CollectiveCounts
from tuimon.session.gpu_time import TimedExchange
from tuimon.session.ranks import RankRow, RankTimes, beside_each_other
from tuimon.session.session import SessionView
from tuimon.session.steps import SHARED_PARTS, SharedStep
from tuimon.text import size_text
from tuimon.threshold import LARGE, MOST, NEARLY_ALL, REPORTED, TINY, UNUSUAL, Threshold

BACKWARD_PER_FORWARD = Threshold(
    3.0,
    "longest that backward takes on a GPU without waiting for other ranks, as a multiple of forward",
    "twice the operations (https://epoch.ai/blog/backward-forward-FLOP-ratio), and once more where activation"
    " checkpointing recomputes the forward pass",
)
TOGETHER_MS = Threshold(
    1.0,
    "ms within which all ranks leave one exchange of gradients",
    "our choice: NCCL's kernels end together, and a GPU's clock is known to some 0.05 ms of its node's",
)
NCCL_SMS = Threshold(
    0.5,
    "largest share of a GPU's multiprocessors that NCCL's kernels keep busy",
    "64 channels, each a block of its own (https://github.com/NVIDIA/nccl/blob/master/src/include/device.h), of the"
    " H100's 132 multiprocessors",
)
ALIKE_SMS = Threshold(
    1.25,
    "largest ratio between the multiprocessors that two ranks keep busy with the same code",
    "our choice: beyond it, the ranks do different work",
)
#: Collectives of one kind have one size if the largest is at most this many times the mean: our choice.
ALIKE_BYTES = 1.1
#: If the steps of two ranks are further apart than this part of a step, they are not the same step.
_SAME_STEP = 0.25
RestsOn = Literal["no_sync", "ranks", "forward", "multiprocessors", "trace"]
#: Reasons why a whole process or its GPU is slow, independent of its code.
Why = Literal["stopped", "no core", "collections", "gpu", "slow gpu", "power"]
#: A late rank must wait for cores this many times as long as the others; below, all are equally starved, and which is
#: last is chance: measured with four balanced ranks next to other programs, 1.6 times.
_STARVED = 2.0
#: Most ranks whose samples and GPU times are judged one by one, at 0.5 ms each. They suffice for the rules: the rank
#: that waits least is among the latest, and a wait common to all ranks is the same in each.
_MAX_RANKS = 32
#: This many of the latest ranks are always among them: others may be late together with the first.
_LATEST = 8
#: Fewest steps that all ranks must share: with this many, shares of being last are known within about 20 points.
_MIN_STEPS = 20
#: Most single steps that are compared, such as 64 of 64 ranks: that takes some 4 ms.
_MAX_ROWS = 4096


class LateRank(Struct, frozen=True, gc=False):
    """The latest rank, the phase that takes longer in it, and the cost to the others."""

    row: RankRow
    others: tuple[RankRow, ...]
    also: tuple[int, ...]  # ranks that are about as late
    share: float  # share of the step that the others wait for it
    error: float  # of that share, where it rests on samples alone
    phase: str  # in which most of the delay lies
    longer: float  # by how much that phase is longer, as a share of the step
    why: Why | None

    @property
    def is_elsewhere(self) -> bool:
        """True if others run on another host."""
        return self.row.host is not None and any(other.host != self.row.host for other in self.others)


def late_rank(rows: Sequence[RankRow]) -> LateRank | None:
    """The latest rank and what the others lose, however little; None with fewer than two measured ranks."""
    measured = [row for row in rows if row.late_ratio is not None and row.state != "lost"]
    if len(measured) < 2:
        return None
    late = max(measured, key=_lateness)
    lateness, others = _lateness(late), tuple(row for row in measured if row is not late)
    excess, now = late.excess, late.phases
    phase = max(excess, key=excess.__getitem__)
    forward, backward, update = (
        TimeGrowth(now.get(name, 0.0) - excess.get(name, 0.0), now.get(name, 0.0)) for name in PASSES
    )
    if phase == "backward" and grow_together(forward, backward, update, TimeGrowth(0.0, lateness)):
        phase = "forward"  # backward takes longer because forward did more
    why = _lateness_reason(late, others)
    if why == "no core" and (late.thread.delay_ratio or 0.0) < _STARVED * median(
        row.thread.delay_ratio or 0.0 for row in others
    ):
        return None
    waits = [row.wait_ratio for row in others if row.wait_ratio is not None]
    if waits:
        waited = median(waits)
    else:  # the others' backward passes are longer by their waits
        waited = median(row.phases.get("backward", 0.0) for row in others) - now.get("backward", 0.0)
    return LateRank(
        row=late,
        others=others,
        also=tuple(row.rank for row in others if _lateness(row) >= ALIKE * lateness > 0),
        share=min(lateness, max(0.0, waited)),
        error=math.hypot(late.error, median(row.error for row in others)),
        phase=phase,
        longer=excess[phase],
        why=why,
    )


def _lateness(row: RankRow) -> float:
    return row.late_ratio or 0.0


def _lateness_reason(late: RankRow, others: Sequence[RankRow]) -> Why | None:
    if late.thread.stopped_ratio >= REPORTED:
        return "stopped"
    if late.gc_ratio - median(row.gc_ratio for row in others) >= MOST * _lateness(late):
        return "collections"
    own, threads = late.thread, [row.thread for row in others]
    ratios = [each.delay_ratio / each.cpu_ratio for each in threads if each.cpu_ratio and each.delay_ratio is not None]
    if own.cpu_ratio is None or own.delay_ratio is None or not ratios:
        return None
    beyond = own.delay_ratio - own.cpu_ratio * median(ratios)  # than as much work waits in other ranks
    return "no core" if beyond >= MOST * _lateness(late) else None


def chosen_ranks(focus: int, rows: Sequence[RankRow]) -> set[int]:
    """The processes of all ranks; if there are more than 32, the latest, and an even selection of the others."""
    pids = [row.pid for row in rows]
    if len(pids) <= _MAX_RANKS:
        return {focus, *pids}
    latest = sorted(rows, key=_lateness, reverse=True)[:_LATEST]
    stride = -(-len(pids) // (_MAX_RANKS - _LATEST))
    return {focus, *(row.pid for row in latest), *pids[::stride]}


class Turns(Struct, frozen=True, gc=False):
    """The share of steps in which each rank was last, and the cost; shares are 0..1."""

    last: tuple[tuple[RankRow, float], ...]  # rank and its share of the steps, most first
    phase: str  # the phase that was longer than usual in the last rank
    share: float  # of the step that others wait for the last rank, beyond their waits for the latest one in all steps
    share_if_even: float  # that would be saved if all ranks had equal work in each step
    longer_ms: float  # by which that phase was longer in the last rank, on average
    step_ms: float
    steps: int  # the number compared


def late_turns(rows: Sequence[RankRow], steps_of: Callable[[int], Sequence[SharedStep]]) -> Turns | None:
    """The turns, from single steps that all ranks have; None with too few, or if ranks wait for others in all phases.

    ``steps_of``: the steps of a process, by pid.
    """
    ranks = [row for row in rows if row.step_ms is not None and row.state != "lost"]
    if len(ranks) < 2 or any(row.on_gpu for row in ranks):
        return None
    waits = [row.waits for row in ranks]  # a phase in which ranks wait for each other is not their own work
    parts = [at for at, name in enumerate(SHARED_PARTS) if median(wait.get(name, 0.0) for wait in waits) < TINY]
    if not parts:
        return None
    most = max(_MIN_STEPS, _MAX_ROWS // len(ranks))
    common = _common([steps_of(row.pid) for row in ranks], min(row.step_ms or 0.0 for row in ranks))[-most:]
    if len(common) < _MIN_STEPS:
        return None
    work_us = [[sum(step.parts_us[part] for part in parts) for step in steps] for steps in common]
    last = [work.index(max(work)) for work in work_us]  # the rank, in each step
    lost_us = fmean(map(_excess, work_us, last))
    means_us = [fmean(of_rank) for of_rank in zip(*work_us, strict=True)]
    lasting_us = _excess(means_us, means_us.index(max(means_us)))
    uneven_us = fmean(max(work) - fmean(work) for work in work_us) - (max(means_us) - fmean(means_us))
    longer_us = {
        part: fmean(map(_excess, ([step.parts_us[part] for step in steps] for steps in common), last)) for part in parts
    }
    longest = max(longer_us, key=longer_us.__getitem__)
    step_us = max(1.0, fmean(sum(step.parts_us) for steps in common for step in steps))
    return Turns(
        last=tuple((ranks[rank], count / len(last)) for rank, count in Counter(last).most_common()),
        phase=SHARED_PARTS[longest],
        share=max(0.0, lost_us - lasting_us) / step_us,
        share_if_even=max(0.0, uneven_us) / step_us,
        longer_ms=longer_us[longest] / 1e3,
        step_ms=step_us / 1e3,
        steps=len(common),
    )


def _common(of_ranks: Sequence[Sequence[SharedStep]], step_ms: float) -> list[list[SharedStep]]:
    """The steps that all ranks have, each as a list by rank; empty if equal numbers do not mean the same step."""
    by_index = [{step.number: step for step in steps} for steps in of_ranks]
    shared = sorted(set(by_index[0]).intersection(*by_index[1:]))
    for steps in by_index[1:]:
        apart_s = [abs(steps[index].end_s - by_index[0][index].end_s) for index in shared]
        if apart_s and median(apart_s) > _SAME_STEP * step_ms / 1e3:
            return []
    return [[steps[index] for steps in by_index] for index in shared]


def _excess(values: Sequence[float], at: int) -> float:
    """The excess of one of the values over the median of the others."""
    return values[at] - median(value for other, value in enumerate(values) if other != at)


class StepCollective(Struct, frozen=True, gc=False):
    """Collectives of one kind in a mean step."""

    name: str  # "all_reduce"
    calls: float
    bytes: float | None  # of all these calls
    largest_bytes: int | None  # of the largest one

    @property
    def text(self) -> str:
        """``all_reduce of 25 MiB, 4 a step``; ``of up to 25 MiB`` if the calls differ in size."""
        size = ""
        if self.bytes and self.largest_bytes:
            differ = self.largest_bytes > ALIKE_BYTES * self.bytes / self.calls
            size = f" of {'up to ' if differ else ''}{size_text(self.largest_bytes)}"
        return f"{self.name}{size}, {self.calls:.1f}".removesuffix(".0") + " a step"


def step_collectives(counts: CollectiveCounts, updates: float) -> tuple[StepCollective, ...]:
    """The collectives of a step with this many updates, those with most bytes first."""
    per_step = updates / max(1, counts.steps)
    return tuple(
        StepCollective(kind.name, kind.calls * per_step, kind.bytes and kind.bytes * per_step, kind.largest_bytes)
        for kind in counts.collectives
        if kind.calls
    )


class Exchange(Struct, frozen=True, gc=False):
    """The time of one rank's GPU in exchanges with other ranks, mostly at the end of backward; shares of its step.

    The GPU computes nothing then, but NVML counts it as busy.
    """

    share: Interval
    waiting: float  # least part of it spent waiting for ranks that come later in the same step
    rests_on: RestsOn  # the evidence for the lower end of the share
    computing_at_least: float  # share of the step in which the GPU does compute

    @property
    def figures(self) -> dict[str, float | None]:
        """Both ends of its share, as findings report them."""
        return {"exchange_at_least_share": self.share.low, "exchange_at_most_share": self.share.high}

    @property
    def is_uneven(self) -> bool:
        """True if most of the exchange is waiting for late ranks, a different one in each step.

        Backward takes twice as long as forward, so a rank that comes 1 ms later takes 2 ms more in backward. The others
        wait 3 ms, of which the ranks' spans show 1: so a sixth of the exchange is already half of it.
        """
        return self.waiting > 0 and self.waiting >= LARGE * self.share.low


def exchanges(ranks: Mapping[int, GpuSteps], world_size: int) -> dict[int, Exchange]:
    """The exchange of every rank, by pid; for a single rank, only what its own times show.

    The largest of four lower bounds counts, or what a trace leaves of the step beside all other work (``GpuSteps``):

    - Under ``no_sync()`` only the last pass of a step exchanges: what it takes longer than those between the first and
      the last is exchange. Without ``no_sync()`` all passes exchange, and the difference is 0.
    - Ranks leave an exchange together. The rank that enters last has the shortest span; by as much as others are
      longer, they wait: with 50, 60 and 55 ms that is 0, 10 and 5. It holds if the ranks' own passes take equally long;
      a rank with more work comes later and takes longer, so the bound is below the truth.
    - No backward pass takes more than ``BACKWARD_PER_FORWARD`` times as long as all forward passes of the step.
    - A GPU that waits in a kernel of NCCL keeps few multiprocessors busy (``waits_by``).

    Time for which backward may idle for lack of launches counts for none of them. If all ranks are on one machine, its
    counters show all that moves, and the time in which next to nothing moves is a wait.
    """
    step_ms = min((gpu.step_ms for gpu in ranks.values()), default=0.0)
    waiting_ms = waits_ms({pid: gpu.time.exchanges for pid, gpu in ranks.items()}, step_ms)
    by_sms = waits_by("sm_ratio", ranks)
    shown = {pid: _exchange(gpu, waiting_ms.get(pid, 0.0), by_sms.get(pid, 0.0)) for pid, gpu in ranks.items()}
    moved = [gpu.moved_bytes_per_s for gpu in ranks.values() if gpu.moved_bytes_per_s is not None]
    if len(moved) < world_size or len({node_of(pid) for pid in ranks}) > 1:
        return shown
    moving = max(moved) / SLOW_PCIE  # the largest share of the time in which anything moves
    return {pid: replace(own, waiting=max(own.waiting, own.share.low - moving)) for pid, own in shown.items()}


def waits_by(figure: Literal["sm_ratio", "power_ratio"], ranks: Mapping[int, GpuSteps]) -> dict[int, float]:
    """Least share of the step that each rank's GPU waits for the GPU with the most busy multiprocessors, or power.

    If ranks run the same code, with 80 % of the multiprocessors busy in one and 20 % in another whose GPU always runs a
    kernel, the other computes for a quarter of the time, or little more. Empty without GPM's figures (Hopper and
    later).
    """
    active = {pid: ratio for pid, gpu in ranks.items() if (ratio := getattr(gpu, figure)) is not None}
    most, busiest = max(((ratio, pid) for pid, ratio in active.items()), default=(0.0, 0))
    if len(active) < 2 or most <= NCCL_SMS:
        return {}
    per_active = ALIKE_SMS * (1.0 - ranks[busiest].idle.low) / most
    return {pid: max(0.0, 1.0 - ranks[pid].idle.high - per_active * ratio) for pid, ratio in active.items()}


def late_on_gpu(rows: Sequence[RankRow], ranks: Mapping[int, GpuSteps]) -> LateRank | None:
    """The rank whose GPU computes while the other ranks' GPUs wait for it; None if unknown.

    A late CPU shows in the rank's phases instead, and in a GPU that idles.
    """
    live = {row.pid: ranks[row.pid] for row in rows if row.pid in ranks and row.state != "lost"}
    by_sms = waits_by("sm_ratio", live)
    waits = by_sms
    # before Hopper NCCL's kernels wait at little power, full clock
    if all(gpu.sm_ratio is None for gpu in live.values()):
        waits = waits_by("power_ratio", live)
    if not by_sms and any(wait and (live[pid].clock_ratio or 0.0) < NEARLY_ALL for pid, wait in waits.items()):
        return None  # at a lower clock, little power does not show a wait
    measured = sorted((row for row in rows if row.pid in waits), key=lambda row: waits[row.pid])
    waiting = [row.pid for row in measured if waits[row.pid]]
    if not waiting or not ranks[measured[0].pid].is_bottleneck:
        return None
    late, *others = measured
    also = tuple(row.rank for row in others if not waits[row.pid])
    share = median(waits[pid] for pid in waiting)
    clock, usual = ranks[late.pid].clock_ratio, median(ranks[pid].clock_ratio or 0.0 for pid in waiting)
    why: Why = "slow gpu" if clock is not None and clock <= (1.0 - UNUSUAL) * usual else "gpu"
    return LateRank(late, tuple(others), also, share, 0.0, "backward", share, why if by_sms else "power")


def _exchange(gpu: GpuSteps, waiting_ms: float, by_sms: float) -> Exchange:
    (span, idle), known = gpu.phases["backward"], gpu.time.accumulation
    longer_ms = 0.0
    if known is not None and known.steps >= MIN_STEPS:
        longer_ms = max(0.0, known.last_ns - known.own_ns) / known.steps / 1e6
    starved_ms = idle.high * gpu.step_ms
    waiting_ms = max(0.0, waiting_ms - starved_ms)
    bounds: dict[RestsOn, float] = {
        "no_sync": longer_ms - starved_ms,
        "ranks": waiting_ms,
        "forward": _own_work_exceeded_ms(gpu) - starved_ms,
        "multiprocessors": by_sms * gpu.step_ms,
    }
    by = max(bounds, key=bounds.__getitem__)
    computing = max(gpu.tensor_ratio or 0.0, ((gpu.sm_ratio or 0.0) - NCCL_SMS) / (1.0 - NCCL_SMS))
    at_least_ms, at_most_ms = max(0.0, bounds[by]), (1.0 - gpu.idle.low - computing) * gpu.step_ms
    if not gpu.waits_anywhere:
        at_most_ms = min(at_most_ms, (span - idle.low) * gpu.step_ms)
    if by == "no_sync" and at_least_ms >= TINY * gpu.step_ms:  # otherwise all passes may exchange
        at_most_ms = min(at_most_ms, longer_ms + starved_ms)
    share = Interval(at_least_ms, max(at_least_ms, at_most_ms)).times(1.0 / gpu.step_ms)
    if gpu.traced is not None:
        others = Interval(1.0 - gpu.idle.high - gpu.traced.high, 1.0 - gpu.idle.low - gpu.traced.low)
        if share.overlaps(others):
            share, by = share.reconciled(others), "trace" if others.low > share.low else by
    return Exchange(share, waiting_ms / gpu.step_ms, by, max(computing, 1.0 - gpu.idle.high - share.high))


def _own_work_exceeded_ms(gpu: GpuSteps) -> float:
    """The time by which the last backward pass of a step exceeds the longest time that its own work can take.

    For two steps with forward of 10 and 30 ms, backward of 70 and 60 ms, that is 40 and 0, on average 20; from the
    means it is 5. If the forward pass of each step is unknown, the means are used.
    """
    of_steps = gpu.time.exchanges
    if len(of_steps) < MIN_STEPS:
        return 0.0
    most_ms = BACKWARD_PER_FORWARD * gpu.phases["forward"].span * gpu.step_ms
    by_steps = [
        max(0.0, exchange.backward_ns - BACKWARD_PER_FORWARD * exchange.forward_ns) / 1e6
        for exchange in of_steps
        if not math.isnan(exchange.forward_ns)
    ]
    by_mean_ms = fmean(exchange.backward_ns for exchange in of_steps) / 1e6 - most_ms
    return max(by_mean_ms, fmean(by_steps) if len(by_steps) >= MIN_STEPS else 0.0)


def waits_ms(ranks: Mapping[int, Sequence[TimedExchange]], step_ms: float) -> dict[int, float]:
    """The least time that each rank waits for later ranks, in the mean step; empty if they do not exchange together.

    If the last rank was not timed in a step, the last timed one stands for it, which makes the waits too short.
    """
    steps = _same_steps(ranks, step_ms * _SAME_STEP / 1e3)
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
    return {pid: fmean(waits_of_rank) for pid, waits_of_rank in waits.items() if len(waits_of_rank) >= MIN_STEPS}


def _same_steps(ranks: Mapping[int, Sequence[TimedExchange]], within_s: float) -> list[dict[int, TimedExchange]]:
    """The exchanges of two or more ranks that belong to one step, by the clock."""
    timed = ((exchange.reached_s, pid, exchange) for pid, of_rank in ranks.items() for exchange in of_rank)
    steps: list[dict[int, TimedExchange]] = []
    since_s = -math.inf
    for reached_s, pid, exchange in sorted(timed):
        if not steps or pid in steps[-1] or reached_s - since_s > within_s:
            steps.append({})
            since_s = reached_s
        steps[-1][pid] = exchange
    return [step for step in steps if len(step) > 1]


def _clocks_ahead_s(steps: Sequence[Mapping[int, TimedExchange]]) -> dict[int, float]:
    """The lead of each further node's clock over the first node's: the median over steps timed on both.

    Ranks that exchange together reach it at one moment, so the difference is that of the clocks, and the same in each
    step.
    """
    first = min((node_of(pid) for step in steps for pid in step), default=0)
    ahead_s: dict[int, list[float]] = defaultdict(list)
    for step in steps:
        reached_s = {node_of(pid): exchange.reached_s for pid, exchange in step.items()}
        if first in reached_s and len(reached_s) > 1:
            for node, moment_s in reached_s.items():
                ahead_s[node].append(moment_s - reached_s[first])
    return {node: median(differences_s) for node, differences_s in ahead_s.items()}


def on_gpu_clock(rows: Sequence[RankRow], view: SessionView) -> tuple[RankRow, ...]:
    """The rows with GPU times, if all compared ranks have them, of enough steps; else the rows unchanged."""
    times: dict[int, RankTimes] = {}
    for row in rows:
        if row.late_ratio is not None:
            gpu = view.of(row.pid).gpu_time
            spans = {name: share.span * (row.step_ms or 0.0) for name, share in gpu.phases.items()} if gpu else {}
            if gpu is None or not has_enough_steps(gpu.steps, gpu.timed_s) or not sum(spans.values()):
                return tuple(rows)
            times[row.pid] = RankTimes(spans, on_gpu=True)
    steps_ms = {pid: measured.step_ms for pid, measured in times.items()}
    clocked = [replace(row, step_ms=steps_ms.get(row.pid, row.step_ms), history=None) for row in rows]
    return tuple(beside_each_other(clocked, times))
