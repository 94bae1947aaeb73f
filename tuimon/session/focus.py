"""The processes of a run: which of them train, which one is in focus, and the node that it runs on."""

from __future__ import annotations

from tuimon.node_ids import node_of
from tuimon.records import Process
from tuimon.session.processes.nodes import MachineTable
from tuimon.session.ranks.groups import ranks_of
from tuimon.session.tables import Tables
from tuimon.session.windows import WINDOW_S


class FocusedTables(Tables):
    """The tables of a run, and the questions about its processes, of which one is in focus."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: int | None = None  # by the user

    def trainers(self) -> list[int]:
        """Processes whose markers show backwards or updates, by rank; without any, the process attached to."""
        if self._trainers is None:
            self._trainers = self._processes.trainers(pid for pid, stats in self._steps.items() if stats.trains)
        return list(self._trainers)

    def trainer(self) -> int | None:
        """The process in focus: the one chosen, else the first live trainer, or the run's root while none is known."""
        trainers = self.trainers()
        if self.chosen is not None and self.chosen in trainers and not self._processes.has_ended(self.chosen):
            return self.chosen
        root = self.header.pid if self.header and self.header.pid else None
        return next((pid for pid in trainers if not self._processes.has_ended(pid)), self._last_of(trainers) or root)

    def _last_of(self, ended: list[int]) -> int | None:
        """The chosen one of trainers that have all ended, or the first; of a rank that was restarted the last."""
        if self.chosen in ended or not ended:
            return self.chosen if ended else None
        if self.held.last is None:
            ranks = ranks_of(ended[0], self._processes.known, set(ended))
            self.held.last = ranks[0].pid if ranks else ended[0]
        return self.held.last

    def focus_on(self, pid: int | None) -> None:
        """Choose the training process that is in focus while it lasts; None: the first one again."""
        self.chosen = pid

    def _sharing(self, pid: int) -> int:
        return 1 if pid == self.trainer() else super()._sharing(pid)

    # -- processes

    def processes(self) -> list[Process]:
        """All processes of the run, trainers first, ended ones last."""
        return self._processes.trainers_first(self.trainers())

    def workers(self, pid: int) -> list[Process]:
        """Live DataLoader workers of a process."""
        return self._processes.workers(pid)

    def recent_workers(self, pid: int) -> list[Process]:
        """DataLoader workers of a process that lived in the last 30 s: some loaders start new ones for every epoch."""
        return self._processes.workers_since(pid, self.now_s - WINDOW_S)

    def had_workers(self, pid: int) -> bool:
        """True if a process ever had DataLoader workers."""
        return self._processes.had_workers(pid)

    def process(self, pid: int) -> Process | None:
        """The latest record of a process."""
        return self._processes.known.get(pid)

    # -- the machine; of a run on several nodes, that of the process in focus

    @property
    def focus_node(self) -> int:
        """The number (``node_ids``) of the node that the process in focus runs on."""
        focus = self.trainer()
        return node_of(focus) if focus is not None else 0

    @property
    def cpu_count(self) -> int | None:
        """Cores that the run may use on the node in focus; None before the header."""
        return self.nodes.cpu_counts.get(self.focus_node)

    @property
    def machine(self) -> MachineTable:
        """Memory of the node in focus."""
        return self.nodes.tables_of(self.focus_node).machine

    def host_of(self, pid: int) -> str | None:
        """The node that a process runs on, by its host name."""
        node = self.nodes.known.get(node_of(pid))
        return node.host if node is not None else self.header.host if self.header is not None else None

    def trainers_here(self) -> list[int]:
        """The trainers on the node in focus."""
        node = self.focus_node
        return [pid for pid in self.trainers() if node_of(pid) == node]

    def _pids_on(self, node: int) -> list[int]:
        pids = self.held.pids
        if pids is None:
            pids = self.held.pids = {}
            for pid in self._processes.known:
                pids.setdefault(node_of(pid), []).append(pid)
        return pids.get(node, [])
