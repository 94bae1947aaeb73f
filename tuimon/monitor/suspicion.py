"""The suspicion of a hang: the processes whose stacks are to be taken, while nothing moves."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.rules.hang import may_hang
from tuimon.records import Frame
from tuimon.session.session import Session
from tuimon.sources.standstill.suspicion import Suspect, Suspicion


def suspicion(session: Session) -> Suspicion | None:
    """The training that may hang, all its ranks and their workers; None while one comes further."""
    pid = session.trainer()
    if pid is None or session.exit is not None:
        return None
    still = next((each for each in evidence_of(session.over("recent"), pid).standstills if may_hang(each)), None)
    if still is None:
        return None
    ranks = [Suspect(rank.pid, "trainer", rank.rank, rank.tid, _loops(session, rank.pid)) for rank in still.ranks]
    workers = (
        Suspect(worker.pid, "worker", rank.rank) for rank in ranks for worker in session.run_processes.workers(rank.pid)
    )
    return Suspicion(session.now_s - still.quiet_s, (*ranks, *workers))


def _loops(session: Session, pid: int) -> tuple[tuple[Frame, ...], ...]:
    """The loops that a process trained in, as its hooks noted them."""
    sampled = session.samples.get(pid)
    stacks = sampled.noted_loops() if sampled is not None else []
    return tuple(tuple(session.frames[number] for number in stack) for stack in stacks)
