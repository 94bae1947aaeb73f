"""What DataLoader workers are called: one name for each, wherever it is shown."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.records import Loader
from tuimon.session.processes.run_processes import RunProcesses

#: Most workers that are remembered, and most loaders, those that reported last: of 64 nodes with as many as are known.
_LIMIT = 8192


class _Known(NamedTuple):
    """What a loader's report says of a worker."""

    trainer: int
    loader: int  # its number
    number: int


class WorkerNames:
    """Folds Loader records: whose worker a process is, and which of them."""

    def __init__(self, processes: RunProcesses) -> None:
        self._processes = processes
        self._known: dict[int, _Known] = {}  # by pid
        self._firsts: dict[int, dict[int, int]] = {}  # trainer -> workers with number 0, and their loaders
        self._roles: dict[tuple[int, int], str | None] = {}  # by trainer and loader: "train", "eval"

    def add_loader(self, record: Loader) -> None:
        """Fold one record; without workers its one row is the training process, which has a name."""
        for report in record.workers:
            if report.pid == record.pid:
                continue
            self._known.pop(report.pid, None)
            self._known[report.pid] = _Known(record.pid, record.number, report.number)
            if report.number == 0:
                self._firsts.setdefault(record.pid, {})[report.pid] = record.number
            self._roles.pop((record.pid, record.number), None)
            self._roles[record.pid, record.number] = record.role
        while len(self._known) > _LIMIT:
            self.forget(next(iter(self._known)))
        while len(self._roles) > _LIMIT:
            del self._roles[next(iter(self._roles))]

    def forget(self, pid: int) -> None:
        """Drop a worker, or a process and the loaders that it had."""
        known = self._known.pop(pid, None)
        if known is not None:
            self._firsts.get(known.trainer, {}).pop(pid, None)
        if self._firsts.pop(pid, None) is not None:
            self._roles = {of: role for of, role in self._roles.items() if of[0] != pid}

    def name(self, pid: int) -> str:
        """``worker 2``, ``eval worker 2``; of several such loaders at a time ``loader 1 worker 2``.

        The number is torch's, ``get_worker_info().id``; before its loader has reported, that of the free place among
        its parent's workers.
        """
        known = self._known.get(pid)
        if known is None:
            return f"worker {self._processes.worker_number(pid)}"
        if self._is_beside_another(pid, known):
            return f"loader {known.loader} worker {known.number}"
        evaluates = self._roles.get((known.trainer, known.loader)) == "eval"
        return f"{'eval ' * evaluates}worker {known.number}"

    def _is_beside_another(self, pid: int, known: _Known) -> bool:
        """Whether another loader of the same trainer, for the same purpose, had workers while this one lived.

        What its batches are for is not known at first: until then it is beside any other, and none is beside it.
        """
        role = self._roles.get((known.trainer, known.loader))
        return any(
            loader != known.loader
            and role in (None, self._roles.get((known.trainer, loader)))
            and self._processes.lived_together(pid, first)
            for first, loader in self._firsts.get(known.trainer, {}).items()
        )
