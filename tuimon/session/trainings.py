"""The trainings of a run: several may run side by side, or one after the other, each of one process or of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.records import Process
from tuimon.session.processes.run_processes import LAST_MOMENT_S
from tuimon.session.rank_list import ranks_in_focus, rows_of, training_of
from tuimon.session.ranks.row import RankRow
from tuimon.session.session import Session


class Which(NamedTuple):
    """Which training the process in focus belongs to, and how many go on; numbers count from 1."""

    ranks: int = 1  # of that training
    number: int = 1
    trainings: int = 1

    @property
    def text(self) -> str:
        """``4 ranks``, ``training 2 of 4``, ``2 ranks, training 1 of 2``; empty for the only process."""
        return self._joined(f"{self.ranks} ranks")

    def text_of_rank(self, rank: int | None) -> str:
        """``rank 3 of 4``, ``training 2 of 4``, ``rank 0 of 2, training 1 of 2``; empty for the only process."""
        return self._joined(f"rank {rank} of {self.ranks}")

    def _joined(self, ranks: str) -> str:
        training = f"training {self.number} of {self.trainings}" if self.trainings > 1 else ""
        return ", ".join(filter(None, (ranks if self.ranks > 1 else "", training)))


class TrainingRow(NamedTuple):
    """One training; ``first`` is its first rank that has not ended, or its only process."""

    number: int
    ranks: int
    command: tuple[str, ...]
    first: RankRow
    in_focus: bool


def which_training(session: Session) -> Which:
    """The training in focus."""
    found = _trainings(session)
    return Which(max(1, len(ranks_in_focus(session))), _index(session.trainer(), found) + 1, max(1, len(found)))


def training_rows(session: Session) -> list[TrainingRow]:
    """All trainings that go on, as they began; once all have ended, those that ended last."""
    found = _trainings(session)
    focus = _index(session.trainer(), found)
    rows = []
    for at, members in enumerate(found):
        first = next((process for process in members if not process.ended), members[0])
        (row,) = rows_of(session.over("recent"), [first])
        rows.append(TrainingRow(at + 1, len(members), tuple(first.command), row, in_focus=at == focus))
    return rows


def training_numbers(session: Session) -> dict[int, int]:
    """The number of the training that each process belongs to, by pid; empty where there is one."""
    found = _trainings(session)
    if len(found) < 2:
        return {}
    return {process.pid: at + 1 for at, members in enumerate(found) for process in members}


def _trainings(session: Session) -> list[list[Process]]:
    """The processes of each, by rank."""
    held = session.held.trainings
    if held is None:
        held = session.held.trainings = _grouped(session, session.trainers())
    return held


def _grouped(session: Session, training: Sequence[int]) -> list[list[Process]]:
    found: list[list[Process]] = []
    seen: set[int] = set()
    for pid in training:
        members = training_of(session.over("recent"), pid) if pid not in seen else []
        if members and not seen.intersection(process.pid for process in members):
            found.append(members)  # else an earlier start of the same ranks
        seen.update((pid, *(process.pid for process in members)))
    return sorted(_current(found), key=lambda members: (min(p.start_unix_s for p in members), members[0].pid))


def _current(found: Sequence[list[Process]]) -> list[list[Process]]:
    """The trainings that go on; without any, those that ended last."""
    live = [members for members in found if not all(process.ended for process in members)]
    if live or not found:
        return live
    ends_s = [max(process.t for process in members) for members in found]
    return [members for members, end_s in zip(found, ends_s, strict=True) if end_s >= max(ends_s) - LAST_MOMENT_S]


def _index(focus: int | None, found: Sequence[Sequence[Process]]) -> int:
    return next((at for at, members in enumerate(found) if any(p.pid == focus for p in members)), 0)
