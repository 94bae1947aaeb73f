"""The processes of a run: trainers, the ranks of one training, and the workers of each trainer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import count

from msgspec import Struct, field

from tuimon.records import Process

#: Most ended processes that are remembered; for those that trained, in addition to those of the last moment.
_ENDED_LIMIT = 64
_TRAINERS_LIMIT = 16
#: Most processes in all: if ends were lost, the oldest go.
KNOWN_LIMIT = 1024
#: A process that has ended keeps those workers that ended at most this long before it.
LAST_MOMENT_S = 10.0
#: Seconds within which a launcher starts the ranks of one machine: our choice, processes of a few ms each where others
#: keep the machine busy.
_RANKS_START_S = 5.0
#: In the command line of Python's fork server, and of the processes that it forks: their parent does not train.
_FORK_SERVER = "multiprocessing.forkserver"


class _Life(Struct):
    """Facts about a process that its record does not have."""

    appeared_s: float  # when it was first seen
    trainer: int  # of a worker or child: its first parent, or that of the fork server that has forked it
    number: int | None = None  # of a worker: its number among all that its trainer has had
    place: int = 0  # of a worker: its number among those that lived when it appeared


class _Workers(Struct):
    """The workers that a trainer has had."""

    pids: dict[int, None] = field(default_factory=dict)  # known ones, in the order of their latest records
    number: int = 0
    together: list[int] = field(default_factory=list)  # those that lived when the latest appeared


class RunProcesses:
    """Folds Process records."""

    def __init__(self) -> None:
        self.known: dict[int, Process] = {}  # the latest record of each, by pid
        self._lives: dict[int, _Life] = {}
        self._workers: dict[int, _Workers] = {}  # by trainer
        self._ended: set[int] = set()
        self._sweep_from = 0  # number of ended processes at which the limits are checked again

    def add_process(
        self, record: Process, trained_pids: Callable[[], Container[int]] = tuple, nodes: int = 1
    ) -> list[int]:
        """Fold a process that appeared, changed or ended; returns the pids to ``forget``, trainers last.

        ``nodes``: how many the run has; the limits are for one node.
        """
        pid = record.pid
        self.known.pop(pid, None)
        self.known[pid] = record  # the newest last
        (self._ended.add if record.ended else self._ended.discard)(pid)
        life = self._lives.get(pid)
        if life is None or (record.role == "worker" and life.number is None):
            life = self._lives[pid] = _Life(life.appeared_s if life is not None else record.t, self._trainer_of(record))
        own = self._workers.setdefault(life.trainer, _Workers()) if record.role == "worker" else None
        if own is not None and life.number is None:
            life.number, own.number = own.number, own.number + 1
            together = [other for other in own.pids if not self.known[other].ended]
            taken = {self._lives[other].place for other in together}
            life.place = next(place for place in count() if place not in taken)
            own.together = [*together, pid]
        if own is not None:
            own.pids.pop(pid, None)
            own.pids[pid] = None
        elif life.number is not None and (own := self._workers.get(life.trainer)) is not None:
            own.pids.pop(pid, None)
            if record.role == "trainer":
                life.number, own.together = None, [other for other in own.together if other != record.pid]
        if len(self.known) <= KNOWN_LIMIT * nodes and (not record.ended or len(self._ended) < self._sweep_from):
            return []
        return self._too_many(nodes, trained_pids)

    def _too_many(self, nodes: int, trained_pids: Callable[[], Container[int]]) -> list[int]:
        """The processes beyond the limits; with many nodes the search waits until as many more have ended."""
        trained = trained_pids()
        ended = [process for process in self.known.values() if process.ended]
        forgotten = [process.pid for process in ended if process.pid not in trained][: -_ENDED_LIMIT * nodes]
        trainers = [process for process in ended if process.pid in trained]  # except those of the last moment
        early = [process.pid for process in trainers if process.t < trainers[-1].t - LAST_MOMENT_S]
        forgotten += early[: -_TRAINERS_LIMIT * nodes]
        excess = len(self.known) - len(forgotten) - KNOWN_LIMIT * nodes
        if excess > 0:
            forgotten += [pid for pid in self.known if pid not in trained and pid not in forgotten][:excess]
        least = min(_ENDED_LIMIT, _TRAINERS_LIMIT) * nodes
        self._sweep_from = max(least, len(self._ended.difference(forgotten))) + nodes
        return forgotten

    def _trainer_of(self, worker: Process) -> int:
        parent = self.known.get(worker.ppid)
        is_server = parent is not None and any(_FORK_SERVER in word for word in parent.command)
        return parent.ppid if parent is not None and is_server else worker.ppid

    def forget(self, pid: int) -> None:
        """Drop a process, or the facts about a pid that another process has now."""
        self.known.pop(pid, None)
        self._ended.discard(pid)
        life = self._lives.pop(pid, None)
        if life is not None and life.trainer in self._workers:
            self._workers[life.trainer].pids.pop(pid, None)
        self._workers.pop(pid, None)

    def has_ended(self, pid: int) -> bool:
        return pid in self.known and self.known[pid].ended

    def trainers(self, training: Iterable[int]) -> list[int]:
        """The processes that train, by rank: those in ``training``, or, without any, those recorded as trainers."""
        pids = list(training) or [process.pid for process in self.known.values() if process.role == "trainer"]
        ranks = {pid: process.rank for pid in pids if (process := self.known.get(pid)) is not None}
        return sorted(pids, key=lambda pid: (math.inf if (rank := ranks.get(pid)) is None else rank, pid))

    def workers(self, trainer: int, lived_s: float = math.inf) -> list[Process]:
        """The live DataLoader workers of a trainer, or those that it had when it ended.

        If all have ended, those of the last epoch that lived until ``lived_s`` or longer.
        """
        parent, own = self.known.get(trainer), self._workers.get(trainer)
        if parent is not None and parent.ended:
            lived_s = min(lived_s, parent.t - LAST_MOMENT_S)
        elif live := self.workers_since(trainer, math.inf):
            return live
        last = [self.known[pid] for pid in own.together if pid in self.known] if own is not None else []
        return [worker for worker in last if worker.t >= lived_s]

    def workers_since(self, trainer: int, t: float) -> list[Process]:
        """DataLoader workers of a trainer that live, or that ended after ``t``."""
        own = self._workers.get(trainer)
        workers = [self.known[pid] for pid in own.pids] if own is not None else []
        return [worker for worker in workers if not worker.ended or worker.t >= t]

    def children(self, trainer: int) -> list[Process]:
        """The live children of a trainer that load for no DataLoader, or those that it had when it ended."""
        parent = self.known.get(trainer)
        ended_s = parent.t - LAST_MOMENT_S if parent is not None and parent.ended else math.inf
        return [
            process
            for process in self.known.values()
            if process.role == "child"
            and self._lives[process.pid].trainer == trainer  # a fork server outlives it, as a child of another
            and (not process.ended or process.t >= ended_s)
        ]

    def successions(self, pids: Iterable[int]) -> list[list[int]]:
        """Groups: a trainer's workers that lived one after another, epoch by epoch; any other process by itself."""
        found: list[list[int]] = []
        of_workers: dict[int, list[list[int]]] = {}  # by trainer
        lives = {pid: self._lives[pid] for pid in pids}
        for pid, life in sorted(lives.items(), key=lambda each: -1 if each[1].number is None else each[1].number):
            earlier = of_workers.setdefault(life.trainer, []) if self.known[pid].role == "worker" else []
            succession = next((each for each in earlier if self._had_ended(each[-1], life.appeared_s)), None)
            if succession is None:
                succession = []
                found.append(succession)
                earlier.append(succession)
            succession.append(pid)
        return found

    def shown(self, pids: Iterable[int]) -> list[int]:
        """The live ones of these processes; if there are none, those that ended last."""
        last_s, given = max((process.t for process in self.known.values()), default=0.0) - LAST_MOMENT_S, list(pids)
        live = [pid for pid in given if not self.has_ended(pid)]
        return live or [pid for pid in given if self.known[pid].t >= last_s]

    def _had_ended(self, pid: int, t: float) -> bool:
        return self.known[pid].ended and self.known[pid].t <= t

    def lived_s(self, pid: int, since_s: float, now_s: float) -> float:
        """How long a process has lived since ``since_s``; its beginning and its end are seen equally late."""
        process = self.known[pid]
        return max(0.0, (process.t if process.ended else now_s) - max(since_s, self._lives[pid].appeared_s))

    def had_workers(self, trainer: int) -> bool:
        """True if a process ever had DataLoader workers."""
        own = self._workers.get(trainer)
        return own is not None and bool(own.together)

    def trainer_and_number(self, pid: int) -> tuple[int, int]:
        """The trainer of a worker, and the worker's number: the lowest that no other had when it appeared."""
        life = self._lives.get(pid)
        return (life.trainer, life.place) if life is not None else (0, 0)

    def lived_together(self, pid: int, other: int) -> bool:
        if pid not in self.known or other not in self.known:
            return False
        begun_s = max(self._lives[pid].appeared_s, self._lives[other].appeared_s)
        return not self._had_ended(pid, begun_s) and not self._had_ended(other, begun_s)


# -- the ranks of one training, with late and restarted ones, and several trainings in one run


def ranks_of(focus: int, processes: Mapping[int, Process], training: Collection[int]) -> list[Process]:
    """The newest process of each rank of the training that ``focus`` belongs to, by rank; without a rank, none.

    ``training``: the processes whose markers show steps. A rank whose process makes no steps yet is included once
    its launcher has started it. One that ended before all live ranks began belongs to an earlier start.
    """
    own = processes.get(focus)
    if own is None or own.rank is None:
        return []
    ranked = [process for process in processes.values() if _is_rank(process, processes, training)]
    newest: dict[int, Process] = {}  # of each rank the live one, of several the one that trains, the last started
    for process in sorted(_without_rivals(own, ranked), key=lambda p: (not p.ended, p.pid in training, p.start_unix_s)):
        if process.rank is not None:
            newest[process.rank] = process
    live_s = [process.start_unix_s for process in newest.values() if not process.ended]
    # the launcher restarts all ranks together: ranks of one start began within moments of each other
    since_s = min(live_s) - max(_RANKS_START_S, max(live_s) - min(live_s)) if live_s else -math.inf
    return [newest[rank] for rank in sorted(newest) if not newest[rank].ended or newest[rank].start_unix_s >= since_s]


def superseded(group: Iterable[Process], processes: Iterable[Process]) -> list[Process]:
    """The processes of earlier starts: the same launcher has since given their ranks to others of this group."""
    newest = {(process.ppid, process.rank): process.pid for process in group}
    earlier = (each for each in processes if newest.get((each.ppid, each.rank), each.pid) != each.pid)
    return [process for process in earlier if process.rank is not None and not process.serves]


def _is_rank(process: Process, processes: Mapping[int, Process], training: Collection[int]) -> bool:
    """True if it trains, or may train later: the outermost Python process of its rank, as children inherit RANK."""
    if process.rank is None or process.serves:
        return False
    if process.pid in training:
        return True
    parent = processes.get(process.ppid)
    inherited = parent is not None and parent.rank == process.rank and parent.python is not None
    return process.python is not None and not inherited


def _without_rivals(own: Process, ranked: Sequence[Process]) -> list[Process]:
    """The processes without those of another training, whose launcher has the same ranks at the same time.

    At the same time: both still run, or they were started at about the same moment.
    """
    alike = [process for process in ranked if process.world_size in (own.world_size, None) or process.pid == own.pid]
    family: dict[int | None, list[Process]] = {}
    for process in alike:
        if process.ppid == own.ppid:
            family.setdefault(process.rank, []).append(process)
    rivals = {
        one.ppid
        for one in alike
        for other in family.get(one.rank, ())
        if one.ppid != own.ppid
        and (not (one.ended or other.ended) or abs(one.start_unix_s - other.start_unix_s) <= _RANKS_START_S)
    }
    return [process for process in alike if process.ppid not in rivals]
