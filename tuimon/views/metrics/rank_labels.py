"""Which rank each training process is called by: one live process to a label, the same as long as it lives."""

from __future__ import annotations

from collections.abc import Container
from itertools import count

from tuimon.session.processes.run_processes import LAST_MOMENT_S
from tuimon.session.session import Session


class RankLabels:
    """Hands out labels. A rank that is started again takes over the label of the one that has ended.

    A process without a rank gets the lowest free number: alone it is rank 0. Of two with the same rank, as of two
    trainings in one command, the second is ``0.1``.
    """

    def __init__(self) -> None:
        self._labels: dict[int, str] = {}

    def of(self, session: Session) -> list[tuple[str, int]]:
        """(label, pid) of the training processes that are alive, or, when none is left, that ended last."""
        pids = _shown(session)
        self._labels = {pid: label for pid, label in self._labels.items() if pid in pids}
        for pid in pids:
            if pid not in self._labels:
                process = session.process(pid)
                self._labels[pid] = _free(process.rank if process is not None else None, set(self._labels.values()))
        return [(self._labels[pid], pid) for pid in pids]


def _shown(session: Session) -> list[int]:
    trainers = session.trainers()
    ended_s = {pid: process.t for pid in trainers if (process := session.process(pid)) is not None and process.ended}
    live = [pid for pid in trainers if pid not in ended_s]
    if live or not ended_s:
        return live
    last_s = max(ended_s.values())
    return [pid for pid in trainers if ended_s[pid] >= last_s - LAST_MOMENT_S]


def _free(rank: int | None, taken: Container[str]) -> str:
    if rank is not None and str(rank) not in taken:
        return str(rank)
    names = (str(number) if rank is None else f"{rank}.{number}" for number in count(0 if rank is None else 1))
    return next(name for name in names if name not in taken)
