"""The ranks that hold the others up: one of them, or each in turn; which ranks rules judge one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Literal, Protocol

from msgspec import Struct

from tuimon.diagnosis.threshold import MOST
from tuimon.session.ranks import RankRow
from tuimon.session.step_sums import SHARED_PARTS, SharedStep

#: Why a whole process is slow, whatever its code does.
Why = Literal["stopped", "no core", "collections"]
#: Share of time that a process is stopped from which that is why it is late: our choice, three windows of thirty.
_STOPPED = 0.1
#: If a rank waits for cores less than so many times as long as the others, all of them share the same lot, and which
#: is last is chance: measured with four balanced ranks beside other programs, 1.6 times.
_STARVED = 2.0
#: Ranks that are late by at least this much of what the latest is are late with it: our choice.
ALIKE = 0.7
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


class _OnCores(Protocol):
    """A thread that trains, or a rank by that."""

    @property
    def cpu_ratio(self) -> float | None:
        """Share of time that it ran."""

    @property
    def delay_ratio(self) -> float | None:
        """Share of time that it waited for a core."""


class LateRank(Struct, frozen=True, gc=False):
    """One rank, what is longer in it, and what that costs the others."""

    row: RankRow
    others: tuple[RankRow, ...]
    also: tuple[int, ...]  # ranks that are about as late
    waited_ms: float | None  # of a step, that the others wait for it; None: only its share is known
    share: float  # of the step
    phase: str  # in which most of it lies
    longer_ms: float | None
    why: Why | None
    error: float = 0.0  # of the share, where samples alone show it

    @property
    def is_elsewhere(self) -> bool:
        """True if others run on another host."""
        return self.row.host is not None and any(other.host != self.row.host for other in self.others)


def late_rank(rows: Sequence[RankRow]) -> LateRank | None:
    """The latest rank with what the others lose, however little that is; None without two measured ranks."""
    measured = [row for row in rows if row.late_ms is not None and row.step_ms and row.state != "lost"]
    if len(measured) < 2:
        return None
    late = max(measured, key=lambda row: row.late_ms or 0.0)
    others = tuple(row for row in measured if row is not late)
    late_ms = late.late_ms or 0.0
    waited_ms = min(late_ms, max(0.0, _waited_ms(late, others)))
    phase, longer_ms = max(late.excess, key=lambda part: part[1])
    why = _why(late, others, late_ms)
    if why == "no core" and (late.delay_ratio or 0.0) < _STARVED * median(row.delay_ratio or 0.0 for row in others):
        return None
    return LateRank(
        row=late,
        others=others,
        also=tuple(row.rank for row in others if (row.late_ms or 0.0) >= ALIKE * late_ms > 0),
        waited_ms=waited_ms,
        share=waited_ms / median(row.step_ms or 0.0 for row in measured),
        phase=phase,
        longer_ms=longer_ms,
        why=why,
    )


def _waited_ms(late: RankRow, others: Sequence[RankRow]) -> float:
    """The time that the others wait in collectives; if it is unknown, by how much their backward passes are longer."""
    known = [row.wait_ms for row in others if row.wait_ms is not None]
    if known:
        return median(known)
    return median(_backward_ms(row) for row in others) - _backward_ms(late)


def _backward_ms(row: RankRow) -> float:
    return dict(row.phases).get("backward", 0.0) * (row.step_ms or 0.0)


def _why(late: RankRow, others: Sequence[RankRow], late_ms: float) -> Why | None:
    if late.stopped_ratio >= _STOPPED:
        return "stopped"
    if late.gc_ms - median(row.gc_ms for row in others) >= MOST * late_ms:
        return "collections"
    return "no core" if waits_for_cores(late, others) * (late.step_ms or 0.0) >= MOST * late_ms else None


def waits_for_cores(late: _OnCores, others: Sequence[_OnCores]) -> float:
    """The share of time that it waits for a core, beyond the wait of as much work in the other ranks."""
    ratios = [row.delay_ratio / row.cpu_ratio for row in others if row.cpu_ratio and row.delay_ratio is not None]
    if late.cpu_ratio is None or late.delay_ratio is None or not ratios:
        return 0.0
    return late.delay_ratio - late.cpu_ratio * median(ratios)


def chosen_ranks(focus: int, rows: Sequence[RankRow]) -> set[int]:
    """The processes of all ranks; of more than 32 the latest, and of the others as many, evenly spread."""
    pids = [row.pid for row in rows]
    if len(pids) <= _MOST_RANKS:
        return {focus, *pids}
    latest = sorted(rows, key=lambda row: -(row.late_ms or 0.0))[:_LATEST]
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
