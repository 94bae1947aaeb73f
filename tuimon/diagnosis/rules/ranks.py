"""Rules about several ranks of one training."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from tuimon.diagnosis.evidence.common import HotFunction, at, hottest_function, percent, row, step_ms
from tuimon.diagnosis.finding import Finding
from tuimon.session.rows import PhaseTable
from tuimon.session.session import Session

#: How much of the step the other ranks wait for one (TraceML: 10 % warning, 20 % critical).
WARN_SHARE = 0.10
CRITICAL_SHARE = 0.20
#: The culprit's own longer phase must explain this much of the others' wait (proposal).
EXPLAINED = 0.5


class _Rank(NamedTuple):
    rank: int
    pid: int
    table: PhaseTable
    step_ms: float

    def ms(self, phase: str) -> float:
        """Of one phase, a step."""
        found = row(self.table, phase)
        return (found.ms_per_step or 0.0) if found else 0.0


def straggler_rank(session: Session, pid: int) -> Finding | None:
    """One rank is late and all others wait for it in the gradients' all-reduce, inside backward.

    Evidence: the rank with the shortest backward waited least: it is the culprit, if it took longer than the others
    before backward. Abstains with less than two measured ranks of one training.
    """
    ranks = _ranks(session)
    if len(ranks) < 2:
        return None
    late, *others = sorted(ranks, key=lambda r: r.ms("backward"))
    waited_ms = median(r.ms("backward") for r in others) - late.ms("backward")
    share = waited_ms / median(r.step_ms for r in ranks)
    phase, longer_ms = max(
        ((p, late.ms(p) - median(r.ms(p) for r in others)) for p in ("data", "forward", "other")), key=lambda x: x[1]
    )
    if share < WARN_SHARE or longer_ms < EXPLAINED * waited_ms:
        return None
    hot = hottest_function(session.hot_lines(late.pid, phase))
    return Finding(
        rule="straggler_rank",
        severity="critical" if share >= CRITICAL_SHARE else "warning",
        headline=_headline(late, others, share, phase, longer_ms, hot),
        action=f"give rank {late.rank} as much work as the others: look at its {phase}, its data, its machine",
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={"rank": late.rank, "pid": late.pid, "waited_ms": waited_ms, "phase": phase, "longer_ms": longer_ms},
        estimated_speedup=1.0 / (1.0 - share) if share < 1.0 else None,
    )


def _headline(
    late: _Rank, others: list[_Rank], share: float, phase: str, longer_ms: float, hot: HotFunction | None
) -> str:
    who = f"rank {others[0].rank} waits" if len(others) == 1 else f"the other {len(others)} ranks wait"
    place = f" at {at(hot.place)}" if hot else ""
    return f"{who} {percent(share)} of every step for rank {late.rank}, {longer_ms:.3g} ms longer in {phase}{place}"


def _ranks(session: Session) -> list[_Rank]:
    """The measured ranks of the training in focus."""
    found = []
    for pid in session.trainers():
        process, table = session.process(pid), session.phases(pid)
        if process is None or process.rank is None or process.ended or table is None:
            continue
        length = step_ms(table)
        if length:
            found.append(_Rank(process.rank, pid, table, length))
    return found
