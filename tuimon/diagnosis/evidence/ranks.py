"""Ranks compared with each other: which of them hold the others up, and what the exchange of gradients takes.

The exchange lies at the end of each backward pass; on GPUs, their clocks show how long it takes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.evidence.course import TimeGrowth, grow_together
from tuimon.diagnosis.evidence.gpu_steps import MIN_STEPS, GpuSteps, PhaseOnGpu, has_enough_steps
from tuimon.diagnosis.interval import NONE, Interval
from tuimon.diagnosis.threshold import LARGE, MOST, TRACE, Threshold
from tuimon.node_ids import node_of
from tuimon.records import PHASES, GpuExchange
from tuimon.session.gpu_time import GpuTimeRow
from tuimon.session.ranks import RankRow, RankTimes, split_ranks
from tuimon.session.steps import SHARED_PARTS, SharedStep
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
NCCL_SMS = Threshold(
    0.5,
    "share of a GPU's multiprocessors that kernels of NCCL keep busy at most",
    "64 channels, each a block of its own (https://github.com/NVIDIA/nccl/blob/master/src/include/device.h), of the"
    " H100's 132 multiprocessors",
)
ALIKE_SMS = Threshold(
    1.25,
    "times as many multiprocessors that the kernels of one rank keep busy as those of another at the same code",
    "our choice: beyond it, work that differs keeps others busy",
)
#: Steps of two ranks that are further apart than this part of one are not the same step.
_SAME_STEP = 0.25
RestsOn = Literal["no_sync", "ranks", "forward", "multiprocessors"]
#: Why a whole process is slow, whatever its code does; or its GPU.
Why = Literal["stopped", "no core", "collections", "gpu"]
#: Share of time that a process is stopped from which that is why it is late: our choice, three windows of thirty.
_STOPPED = 0.1
#: If a rank waits for cores less than so many times as long as the others, all of them share the same lot, and which
#: is last is chance: measured with four balanced ranks beside other programs, 1.6 times.
_STARVED = 2.0
#: Ranks that are late by at least this much of what the latest is are late with it: our choice.
_ALIKE = 0.7
#: Most ranks whose samples and GPU times are judged one by one: 0.5 ms each, and what a rule needs of them shows in
#: these: who waits least is among the latest, and what all wait is alike in all.
_MOST_RANKS = 32
#: As many of the latest ranks are always among them: others may be late with the first.
_LATEST = 8
#: Fewest steps that all ranks have in common: with them shares of being last are known within about 20 points.
_LEAST_STEPS = 20
#: Most steps of ranks that are held against each other, 64 of 64 ranks: they take some 4 ms.
_MOST_ROWS = 4096
#: A phase in which ranks wait for others this share of the step holds such waits, and is not their own work alone.
_WAITS = 0.02
#: Steps of one number in two ranks end within this part of a step of one another, if they are the same step.
_TOGETHER = 0.5


class LateRank(Struct, frozen=True, gc=False):
    """One rank, what is longer in it, and what that costs the others."""

    row: RankRow
    others: tuple[RankRow, ...]
    also: tuple[int, ...]  # ranks that are about as late
    share: float  # of the step, that the others wait for it
    error: float  # of that, where samples alone show it
    phase: str  # in which most of it lies
    longer: float  # share of the step by which that is longer
    why: Why | None

    @property
    def is_elsewhere(self) -> bool:
        """True if others run on another host."""
        return self.row.host is not None and any(other.host != self.row.host for other in self.others)


def late_rank(rows: Sequence[RankRow]) -> LateRank | None:
    """The latest rank with what the others lose, however little that is; None without two measured ranks."""
    measured = [row for row in rows if row.late_ratio is not None and row.state != "lost"]
    if len(measured) < 2:
        return None
    late = max(measured, key=_lateness)
    others = tuple(row for row in measured if row is not late)
    phase, longer = max(late.excess, key=lambda part: part[1])
    if phase == "backward" and _does_more_work(late):
        phase, longer = "forward", dict(late.excess)["forward"]
    why = _why(late, others)
    if why == "no core" and (late.delay_ratio or 0.0) < _STARVED * median(row.delay_ratio or 0.0 for row in others):
        return None
    return LateRank(
        row=late,
        others=others,
        also=tuple(row.rank for row in others if _lateness(row) >= _ALIKE * _lateness(late) > 0),
        share=min(_lateness(late), max(0.0, _waited(late, others))),
        error=math.hypot(late.error, median(row.error for row in others)),
        phase=phase,
        longer=longer,
        why=why,
    )


def _lateness(row: RankRow) -> float:
    return row.late_ratio or 0.0


def _does_more_work(late: RankRow) -> bool:
    """True if both passes are so alike longer: backward takes longer as forward has done more."""
    excess, now = dict(late.excess), dict(late.phases)
    forward, backward, update = (
        TimeGrowth(now.get(name, 0.0) - excess.get(name, 0.0), now.get(name, 0.0))
        for name in ("forward", "backward", "optimizer")
    )
    return grow_together(forward, backward, update, TimeGrowth(0.0, _lateness(late)))


def _waited(late: RankRow, others: Sequence[RankRow]) -> float:
    """What the others wait in collectives; if it is unknown, by how much their backward passes are longer."""
    known = [row.wait_ratio for row in others if row.wait_ratio is not None]
    if known:
        return median(known)
    backward = [dict(row.phases).get("backward", 0.0) for row in (late, *others)]
    return median(backward[1:]) - backward[0]


def _why(late: RankRow, others: Sequence[RankRow]) -> Why | None:
    if late.stopped_ratio >= _STOPPED:
        return "stopped"
    if late.gc_ratio - median(row.gc_ratio for row in others) >= MOST * _lateness(late):
        return "collections"
    ratios = [row.delay_ratio / row.cpu_ratio for row in others if row.cpu_ratio and row.delay_ratio is not None]
    if late.cpu_ratio is None or late.delay_ratio is None or not ratios:
        return None
    beyond = late.delay_ratio - late.cpu_ratio * median(ratios)  # what as much work in the other ranks waits
    return "no core" if beyond >= MOST * _lateness(late) else None


def chosen_ranks(focus: int, rows: Sequence[RankRow]) -> set[int]:
    """The processes of all ranks; of more than 32 the latest, and of the others as many, evenly spread."""
    pids = [row.pid for row in rows]
    if len(pids) <= _MOST_RANKS:
        return {focus, *pids}
    latest = sorted(rows, key=_lateness, reverse=True)[:_LATEST]
    stride = -(-len(pids) // (_MOST_RANKS - _LATEST))
    return {focus, *(row.pid for row in latest), *pids[::stride]}


class Turns(Struct, frozen=True, gc=False):
    """Who was last how often, and what that costs; shares are 0..1."""

    last: tuple[tuple[RankRow, float], ...]  # rank and its share of the steps, most first
    phase: str  # that was longer than usual in the last rank
    share: (
        float  # of the step that the others wait for whoever is last, beyond what they wait for one rank in all steps
    )
    share_if_even: float  # that would be won if all had as much work in each step
    longer_ms: float  # in that phase, of the last rank, on average
    step_ms: float
    steps: int  # compared


def late_turns(rows: Sequence[RankRow], steps_of: Callable[[int], Sequence[SharedStep]]) -> Turns | None:
    """By single steps that all ranks have; None where too few are known, or ranks wait for each other in all phases.

    ``steps_of``: by pid.
    """
    ranks = [row for row in rows if row.step_ms is not None and row.state != "lost"]
    own = _own_parts(ranks) if len(ranks) > 1 else []
    if not own or any(row.on_gpu for row in ranks):
        return None
    most = max(_LEAST_STEPS, _MOST_ROWS // len(ranks))
    common = _common([steps_of(row.pid) for row in ranks], min(row.step_ms or 0.0 for row in ranks))[-most:]
    if len(common) < _LEAST_STEPS:
        return None
    work_us = [[sum(step.parts_us[place] for place in own) for step in steps] for steps in common]
    late = [max(range(len(ranks)), key=work.__getitem__) for work in work_us]
    lost_us = fmean(work[last] - _others(work, last) for work, last in zip(work_us, late, strict=True))
    means = [fmean(work[n] for work in work_us) for n in range(len(ranks))]
    latest = max(range(len(ranks)), key=means.__getitem__)
    lasting_us = means[latest] - _others(means, latest)
    uneven_us = fmean(max(work) - fmean(work) for work in work_us) - (means[latest] - fmean(means))
    phase, longer_us = _longer(common, late, own)
    step_us = max(1.0, fmean(sum(step.parts_us) for steps in common for step in steps))
    counts = Counter(late)
    return Turns(
        last=tuple((ranks[n], count / len(late)) for n, count in counts.most_common()),
        phase=phase,
        share=max(0.0, lost_us - lasting_us) / step_us,
        share_if_even=max(0.0, uneven_us) / step_us,
        longer_ms=longer_us / 1e3,
        step_ms=step_us / 1e3,
        steps=len(common),
    )


def _own_parts(ranks: Sequence[RankRow]) -> list[int]:
    """The places of the phases in which ranks do not wait for each other."""
    waits = [dict(row.waits) for row in ranks]
    return [
        place
        for place, name in enumerate(SHARED_PARTS)
        if median(wait.get(name, 0.0) for wait in waits) < _WAITS
    ]  # fmt: skip


def _common(of_ranks: Sequence[Sequence[SharedStep]], step_ms: float) -> list[list[SharedStep]]:
    """The steps that all ranks have, a list of ranks for each; none where numbers do not mean the same step."""
    by_index = [{step.number: step for step in steps} for steps in of_ranks]
    shared = sorted(set(by_index[0]).intersection(*by_index[1:]))
    for steps in by_index[1:]:
        apart_s = [abs(steps[index].end_s - by_index[0][index].end_s) for index in shared]
        if apart_s and median(apart_s) > _TOGETHER * step_ms / 1e3:
            return []
    return [[steps[index] for steps in by_index] for index in shared]


def _others(values: Sequence[float], but: int) -> float:
    return median(value for n, value in enumerate(values) if n != but)


def _longer(common: Sequence[Sequence[SharedStep]], late: Sequence[int], own: Sequence[int]) -> tuple[str, float]:
    """The phase that was most longer in the last rank than in the others, and by how many us on average."""
    excess = {
        place: fmean(
            steps[last].parts_us[place] - _others([step.parts_us[place] for step in steps], last)
            for steps, last in zip(common, late, strict=True)
        )
        for place in own
    }
    place = max(excess, key=excess.__getitem__)
    return SHARED_PARTS[place], excess[place]


class Exchange(Struct, frozen=True, gc=False):
    """The time that one rank's GPU spends on other ranks, mostly at the end of its backward passes; shares of its step.

    It computes nothing then, but NVML counts it as busy.
    """

    share: Interval
    waiting: float  # of that, for ranks that come later in the same step, at least
    rests_on: RestsOn  # which evidence gave the lower end of the share
    computing_at_least: float  # share of the step in which it does compute

    @property
    def figures(self) -> dict[str, float | None]:
        """Both ends of its share, as findings report them."""
        return {"exchange_at_least_share": self.share.low, "exchange_at_most_share": self.share.high}

    @property
    def is_uneven(self) -> bool:
        """True if most of it is waiting for ranks that come later, in each step others.

        Backward takes twice as long as forward, so who comes 1 ms later takes 2 ms more in backward, and of the 3 ms
        that others wait the ranks' spans show 1: a sixth of the exchange is half of it already.
        """
        return self.waiting > 0 and self.waiting >= LARGE * self.share.low


def exchanges(ranks: Mapping[int, GpuSteps]) -> dict[int, Exchange]:
    """The exchange of every rank, by pid; of one rank alone, what follows from its own times.

    Four lower bounds, the largest counts:

    - Passes between the first and the last of a step exchange nothing under ``no_sync()``: what the last takes longer
      than these is exchange. Without ``no_sync()`` all exchange, and the difference is 0.
    - Ranks come out of an exchange together. Who comes into it last has the shortest span, what others take longer
      they wait: with 50, 60 and 55 ms it is 0, 10 and 5. That holds where the ranks' own passes take alike; a rank that
      has more work comes later and takes longer, and it is less than the truth.
    - No backward pass takes more than ``BACKWARD_PER_FORWARD`` times what all forward passes of the step take.
    - A GPU that waits in a kernel of NCCL keeps few multiprocessors busy (``waits_by_sms``).

    The time that backward may idle for want of launches counts for none of them.
    """
    step_ms = min((gpu.step_ms for gpu in ranks.values()), default=0.0)
    waiting_ms = waits_ms({pid: gpu.time.exchanges for pid, gpu in ranks.items()}, step_ms)
    by_sms = waits_by_sms(ranks)
    return {pid: _exchange(gpu, waiting_ms.get(pid, 0.0), by_sms.get(pid, 0.0)) for pid, gpu in ranks.items()}


def waits_by_sms(ranks: Mapping[int, GpuSteps]) -> dict[int, float]:
    """Share of the step that each rank's GPU waits at least for the one with most busy multiprocessors.

    Where they run the same code, with 80 % of them busy in one and 20 % in another that always runs a kernel, the other
    computes for a quarter of the time, or a little more. Empty without GPM's figures (Hopper and later).
    """
    known = {pid: (gpu.sm_ratio, gpu.idle) for pid, gpu in ranks.items() if gpu.sm_ratio is not None}
    most, idle = max(known.values(), default=(0.0, NONE))
    if len(known) < 2 or most <= NCCL_SMS:
        return {}
    per_sm = ALIKE_SMS * (1.0 - idle.low) / most
    return {pid: max(0.0, 1.0 - idle.high - per_sm * active) for pid, (active, idle) in known.items()}


def late_on_gpu(rows: Sequence[RankRow], ranks: Mapping[int, GpuSteps]) -> LateRank | None:
    """The rank whose GPU computes while those of the others wait for it; None where that is not known.

    A late CPU shows in the rank's phases, and in a GPU that idles.
    """
    waits = waits_by_sms({row.pid: ranks[row.pid] for row in rows if row.pid in ranks and row.state != "lost"})
    measured = sorted((row for row in rows if row.pid in waits), key=lambda row: waits[row.pid])
    if not measured or not ranks[measured[0].pid].is_bottleneck:
        return None
    late, *others = measured
    also = tuple(row.rank for row in others if not waits[row.pid])
    share = median(waits[row.pid] for row in others)
    return LateRank(late, tuple(others), also, share, 0.0, "backward", share, "gpu")


def _exchange(gpu: GpuSteps, waiting_ms: float, by_sms: float) -> Exchange:
    backward, known = gpu.phases.get("backward", PhaseOnGpu(0.0, NONE)), gpu.time.accumulation
    longer_ms = 0.0
    if known is not None and known.steps >= MIN_STEPS:
        longer_ms = max(0.0, known.last_ns - known.own_ns) / known.steps / 1e6
    starved_ms = backward.idle.high
    waiting_ms = max(0.0, waiting_ms - starved_ms)
    bounds: dict[RestsOn, float] = {
        "no_sync": longer_ms - starved_ms,
        "ranks": waiting_ms,
        "forward": _own_work_exceeded_ms(gpu) - starved_ms,
        "multiprocessors": by_sms * gpu.step_ms,
    }
    by = max(bounds, key=bounds.__getitem__)
    computing = max(0.0, ((gpu.sm_ratio or 0.0) - NCCL_SMS) / (1.0 - NCCL_SMS))
    at_least_ms, at_most_ms = max(0.0, bounds[by]), (1.0 - gpu.idle.low - computing) * gpu.step_ms
    if not gpu.waits_anywhere:
        at_most_ms = min(at_most_ms, backward.ms - backward.idle.low)
    if by == "no_sync" and at_least_ms >= TRACE * gpu.step_ms:  # else perhaps all passes exchange
        at_most_ms = min(at_most_ms, longer_ms + starved_ms)
    share = Interval(at_least_ms, max(at_least_ms, at_most_ms)).times(1.0 / gpu.step_ms)
    return Exchange(share, waiting_ms / gpu.step_ms, by, max(computing, 1.0 - gpu.idle.high - share.high))


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
        if row.late_ratio is not None:
            known = _times(row, gpus.get(row.pid))
            if known is None:
                return tuple(rows)
            times[row.pid] = known
    splits = dict(zip(times, split_ranks(list(times.values())), strict=True))
    return tuple(
        row._replace(
            step_ms=(step_ms := times[row.pid].step_ms),
            phases=tuple((name, ms / step_ms) for name, ms in times[row.pid].ms.items()),
            wait_ratio=None,
            waits=(),
            late_ratio=splits[row.pid].late_ms / step_ms,
            excess=tuple((name, ms / step_ms) for name, ms in splits[row.pid].excess_ms.items()),
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
