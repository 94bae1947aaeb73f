"""Ranks that take turns being late: each step waits for another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean, median

from msgspec import Struct

from tuimon.session.ranks.row import RankRow
from tuimon.session.ranks.shared_steps import SHARED_PARTS, SharedStep

#: Fewest steps that all ranks have in common: with them shares of being last are known within about 20 points.
_LEAST_STEPS = 20
#: Most steps of ranks that are held against each other, 64 of 64 ranks: they take some 4 ms.
_MOST_ROWS = 4096
#: A phase in which ranks wait for others this share of the step holds such waits, and is not their own work alone.
_WAITS = 0.02
#: Steps of one number in two ranks end within this part of a step of one another, if they are the same step.
_TOGETHER = 0.5


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
    own = _own_parts(ranks)
    if len(ranks) < 2 or not own or any(row.on_gpu for row in ranks):
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
    by_index = [{step.index: step for step in steps} for steps in of_ranks]
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
