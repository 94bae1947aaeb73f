"""The course of a whole run in bounded space: mean steps by phase over time, however long the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tuimon.records import BETWEEN, Record, Steps
from tuimon.session.steps.history import STACKED

#: Stretches of a run that are kept apart; each is twice as long once there are more.
MOST = 480
#: Processes whose course is kept: of more, which are ranks of a run, those with the least ids, of its first nodes.
_PROCESSES = 64
_PARTS = (*STACKED, BETWEEN)


class _Stretches:
    """Sums over stretches of equal length, of one process."""

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self.length_s = 1.0
        self.sums: list[list[float]] = []  # ns by part, and the number of steps

    def add(self, record: Steps) -> None:
        """A window counts where it ends."""
        while (at := int(max(0.0, record.t - self.start_s) / self.length_s)) >= MOST:
            self._halve()
        while len(self.sums) <= at:
            self.sums.append([0.0] * (len(_PARTS) + 1))
        total_ns = {phase.name: phase.total_ns for phase in record.phases}
        row = self.sums[at]
        for part, name in enumerate(_PARTS):
            row[part] += total_ns.get(name, 0)
        row[-1] += record.usual

    def _halve(self) -> None:
        pairs = [self.sums[at : at + 2] for at in range(0, len(self.sums), 2)]
        self.sums = [[sum(column) for column in zip(*pair, strict=True)] for pair in pairs]
        self.length_s *= 2


class Course:
    """Follows the records of a log while they are folded."""

    def __init__(self) -> None:
        self._start_s: float | None = None
        self._of: dict[int, _Stretches] = {}
        self._highest = 0  # of the processes in ``_of``

    def over(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records as they are."""
        for record in records:
            if self._start_s is None:
                self._start_s = record.t
            if isinstance(record, Steps) and record.usual:
                self._add(record, self._start_s)
            yield record

    def _add(self, record: Steps, start_s: float) -> None:
        kept = self._of.get(record.pid)
        if kept is None:
            if len(self._of) >= _PROCESSES:
                if record.pid > self._highest:
                    return
                del self._of[self._highest]
            kept = self._of[record.pid] = _Stretches(start_s)
            self._highest = max(self._of)
        kept.add(record)

    def rows(self, pid: int, between: tuple[float, ...]) -> tuple[float, list[tuple[float, ...] | None]] | None:
        """Length of a stretch in s, and the mean step of each in ms by ``STACKED``; None where no step ended.

        ``between``: how the time that markers cannot split is divided into STACKED.
        """
        stretches = self._of.get(pid)
        if stretches is None:
            return None
        return stretches.length_s, [_row(sums, between) for sums in stretches.sums]


def _row(sums: list[float], between: tuple[float, ...]) -> tuple[float, ...] | None:
    *parts, unsplit, steps = sums
    if not steps:
        return None
    return tuple((ns + unsplit * share) / steps / 1e6 for ns, share in zip(parts, between, strict=True))
