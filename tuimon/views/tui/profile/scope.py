"""Which samples to show: of one thread, of all threads of a role, of a process, or of the whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from tuimon.session.loop_tree.stacks import StackSample
from tuimon.session.rows import ThreadRow, role_kind

if TYPE_CHECKING:
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

    def samples(self, session: Session) -> list[StackSample]:
        """Their samples of the last 30 s; outside the training processes the phase is "none"."""
        trainers = set(session.trainers())
        found: list[StackSample] = []
        for pid, tid in self.threads(session):
            sampled = session.samples.get(pid)
            own = sampled.now().samples_of(tid) if sampled is not None else []
            found += own if pid in trainers else [sample.at("none") for sample in own]
        return found


def count_same_role(rows: list[ThreadRow], scope: Scope) -> int:
    """How many threads share the role of the scope's thread."""
    return sum(1 for row in rows if row.kind == scope.kind)


def latest_times(session: Session, scope: Scope) -> tuple[float, ...]:
    """Times of the selected processes' latest samples: changes whenever the samples do."""
    pids = {pid for pid, _ in scope.threads(session)}
    spots = (session.samples.get(pid) for pid in sorted(pids))
    return tuple(spot.latest.t for spot in spots if spot is not None and spot.latest is not None)


def _sampled(session: Session, pids: list[int]) -> list[tuple[int, int]]:
    spots = [(pid, session.samples.get(pid)) for pid in pids]
    return [(pid, tid) for pid, spot in spots if spot is not None for tid in spot.now().tids()]
