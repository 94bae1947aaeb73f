"""Which samples to show: of one thread, of all of a role, of a process, of the run; and the thread that is blamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from tuimon.records import Place
from tuimon.session.stacks.samples import Samples
from tuimon.session.threads import ThreadRow, role_kind

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

ScopeLevel = Literal["thread", "role", "process", "run"]
SCOPE_LEVELS: tuple[ScopeLevel, ...] = ("thread", "role", "process", "run")


class Scope(NamedTuple):
    """A thread, and how much around it belongs to the selection."""

    pid: int
    tid: int
    role: str  # of the thread, for the user: "main", "worker 0"
    level: ScopeLevel = "thread"

    @property
    def kind(self) -> str:
        """The role without its number: ``worker``."""
        return role_kind(self.role)

    def threads(self, session: Session) -> list[tuple[int, int]]:
        """(pid, tid) of the selected threads."""
        match self.level:
            case "thread":
                return [(self.pid, self.tid)]
            case "process":
                return _sampled(session, [self.pid])
            case "role":
                return [(row.pid, row.tid) for row in session.over("recent").threads() if row.kind == self.kind]
            case "run":
                return _sampled(session, [process.pid for process in session.processes()] or [self.pid])

    def samples(self, session: Session) -> Samples:
        """Their samples of the last 30 s; outside the training processes the phase is "none"."""
        trainers, found = set(session.trainers()), []
        for pid, tid in self.threads(session):
            sampled = session.stacks.get(pid)
            if sampled is not None:
                own = sampled.over(tid=tid, now=True)
                found.append(own if pid in trainers else Samples(tuple(row.at("none") for row in own.rows)))
        return Samples.joined(found)


def count_same_role(rows: list[ThreadRow], scope: Scope) -> int:
    """How many threads share the role of the scope's thread."""
    return sum(1 for row in rows if row.kind == scope.kind)


def latest_times(session: Session, scope: Scope) -> tuple[float, ...]:
    """Times of the selected processes' latest samples: changes whenever the samples do."""
    pids = {pid for pid, _ in scope.threads(session)}
    spots = (session.stacks.get(pid) for pid in sorted(pids))
    return tuple(spot.latest_s for spot in spots if spot is not None and spot.latest_s is not None)


def _sampled(session: Session, pids: list[int]) -> list[tuple[int, int]]:
    spots = [(pid, session.stacks.get(pid)) for pid in pids]
    return [(pid, tid) for pid, spot in spots if spot is not None for tid in spot.tids(now=True)]


#: Workers whose samples are searched: they do the same work, and a table of each takes some milliseconds.
_WORKERS = 8


class Blamed(NamedTuple):
    """A thread, and the line of its code."""

    row: ThreadRow
    place: Place


def blamed(session: Session, findings: Sequence[Finding]) -> Blamed | None:
    """The training thread or the worker with most samples at the place of the first finding; None without any."""
    where = findings[0].where[0] if findings and findings[0].where else None
    pid = session.trainer()
    if where is None or pid is None:
        return None
    rows = session.over("recent").threads()
    training = [row for row in rows if (row.pid, row.tid) == (pid, session.training_tid(pid))]
    workers = [row for row in rows if row.kind == "worker"][:_WORKERS]
    passed = [(_samples_at(session, row, where), row) for row in (*training, *workers)]
    most, row = max(passed, key=lambda found: found[0], default=(0, None))
    return Blamed(row, where) if row is not None and most else None


def _samples_at(session: Session, row: ThreadRow, where: Place) -> int:
    """How many samples of a thread pass through a line."""
    lines = Scope(row.pid, row.tid, row.role).samples(session).table().lines
    return sum(line.total for line in lines if (line.place.file, line.place.line) == (where.file, where.line))
