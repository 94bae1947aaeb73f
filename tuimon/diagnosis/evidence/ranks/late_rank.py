"""The rank that holds the others up."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from msgspec import Struct

from tuimon.session.ranks.row import RankRow

#: Why a whole process is slow, whatever its code does.
Why = Literal["stopped", "no core", "collections"]
#: Share of time that a process is stopped from which that is why it is late: our choice, three windows of thirty.
_STOPPED = 0.1
#: Share of its lateness that one reason must explain: our choice, most of it.
_MOST = 0.5
#: Where a rank waits for cores less than so many times as long as the others, all of them share the same lot, and which
#: is last is chance: measured with four balanced ranks beside other programs, 1.6 times.
_STARVED = 2.0
#: Ranks that are late by at least this much of what the latest is are late with it: our choice.
_ALIKE = 0.7


class LateRank(Struct, frozen=True, gc=False):
    """One rank, what is longer in it, and what that costs the others."""

    row: RankRow
    others: tuple[RankRow, ...]
    also: tuple[int, ...]  # ranks that are about as late
    waited_ms: float  # of a step, that the others wait for it
    share: float  # of the step
    phase: str  # in which most of it lies
    longer_ms: float
    why: Why | None


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
        also=tuple(row.rank for row in others if (row.late_ms or 0.0) >= _ALIKE * late_ms > 0),
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
    if late.gc_ms - median(row.gc_ms for row in others) >= _MOST * late_ms:
        return "collections"
    return "no core" if _waits_for_cores_ms(late, others) >= _MOST * late_ms else None


def _waits_for_cores_ms(late: RankRow, others: Sequence[RankRow]) -> float:
    """The time a step that it waits for a core, beyond the wait of as much work in the other ranks."""
    ratios = [row.delay_ratio / row.cpu_ratio for row in others if row.cpu_ratio and row.delay_ratio is not None]
    if late.cpu_ratio is None or late.delay_ratio is None or not ratios:
        return 0.0
    return (late.delay_ratio - late.cpu_ratio * median(ratios)) * (late.step_ms or 0.0)
