"""Which samples are asked about: one thread, all of a role, a process, the whole run; with their phases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from tuimon.session.rows import ThreadRow
from tuimon.session.samples.classify import Sample

if TYPE_CHECKING:
    from tuimon.session.session import Session

Extent = Literal["thread", "role", "process", "run"]
EXTENTS: tuple[Extent, ...] = ("thread", "role", "process", "run")


class Scope(NamedTuple):
    """A thread, and how far around it one asks."""

    pid: int
    tid: int
    role: str  # of the thread, for people: "main", "worker 0"
    extent: Extent = "thread"

    @property
    def kind(self) -> str:
        """The role without its number: ``worker``."""
        return self.role.rstrip("0123456789").rstrip()

    def threads(self, session: Session) -> list[tuple[int, int]]:
        """(pid, tid) of the threads meant."""
        match self.extent:
            case "thread":
                return [(self.pid, self.tid)]
            case "process":
                return _sampled(session, [self.pid])
            case "role":
                return [(row.pid, row.tid) for row in session.threads() if _kind(row) == self.kind]
            case "run":
                return _sampled(session, [process.pid for process in session.processes()] or [self.pid])

    def samples(self, session: Session) -> list[Sample]:
        """Their samples of the last 30 s. A phase is of a training process: elsewhere it is "none"."""
        trainers = set(session.trainers())
        found: list[Sample] = []
        for pid, tid in self.threads(session):
            sampled = session.process_samples(pid)
            own = sampled.samples_of(tid) if sampled is not None else []
            found += own if pid in trainers else [Sample(sample.stack, sample.count, "none") for sample in own]
        return found


def same_role(rows: list[ThreadRow], scope: Scope) -> int:
    """How many threads share the role of the scope's thread."""
    return sum(1 for row in rows if _kind(row) == scope.kind)


def newest(session: Session, scope: Scope) -> tuple[float, ...]:
    """Changes whenever the samples asked about do."""
    pids = {pid for pid, _ in scope.threads(session)}
    spots = (session.process_samples(pid) for pid in sorted(pids))
    return tuple(spot.latest.t for spot in spots if spot is not None and spot.latest is not None)


def _kind(row: ThreadRow) -> str:
    return row.role.rstrip("0123456789").rstrip()


def _sampled(session: Session, pids: list[int]) -> list[tuple[int, int]]:
    spots = [(pid, session.process_samples(pid)) for pid in pids]
    return [(pid, tid) for pid, spot in spots if spot is not None for tid in spot.tids()]
