"""Who has the cores of a machine besides the run: other programs, other guests of its host, a CPU limit."""

from __future__ import annotations

import math
from collections import defaultdict
from operator import add

from msgspec import Struct
from msgspec.structs import astuple

from tuimon.records import MachineMemory, Threads

#: Seconds for which the run's own use is held: more than two windows of the machine. Of a long log, whose windows are
#: merged, twice the longest, and no more than so many.
_SECONDS = 32
_MOST_SECONDS = 1024
#: A process whose CPU is not known yet has begun just now: no more than a core, as one thread loads its code.
_STARTING_CORES = 1.0


class CoresTaken(Struct, frozen=True, gc=False):
    """Cores that the run could not have over a time."""

    others: float  # used by programs that are neither the run's nor tuimon
    idle: float | None  # used by nobody; None where the number of cores is unknown
    stolen: float = 0.0  # that the host of a virtual machine gave to others meanwhile
    held: float = 0.0  # that the CPU limit of a control group kept from the run's threads, which were ready to run
    limit: float | None = None  # that limit


class _Sum(Struct, frozen=True, gc=False):
    """Core-seconds of windows of the machine."""

    seconds: float = 0.0
    busy: float = 0.0
    own: float = 0.0
    stolen: float = 0.0
    held: float = 0.0

    def plus(self, record: MachineMemory, own: float) -> _Sum:
        seconds = record.window_s
        cores = (record.busy_cores, own, record.stolen_cores, record.held_cores)
        return _Sum(*map(add, astuple(self), (seconds, *((each or 0.0) * seconds for each in cores))))


class CoreUse:
    """Folds what all programs of a machine use, and what the run uses of it.

    Windows of the machine are longer than those of processes and begin at other moments. Own use is held by the second,
    and taken off over the same time: a run that used 1.5 cores from 3 s to 5 s, and none from 0 s to 3 s, has 0.6 of
    the 1.6 cores that were busy from 0 s to 5 s.
    """

    def __init__(self) -> None:
        self._own: defaultdict[int, float] = defaultdict(float)  # core-seconds by second
        self._own_until_s = -math.inf
        self._seconds = _SECONDS
        self._begin_s = math.inf
        self._latest: MachineMemory | None = None
        self._sum = _Sum()

    def add_threads(self, record: Threads) -> None:
        """Fold a window of a process of the run."""
        cores = _own_cores(record) + record.childrens_cores
        window_s = min(record.window_s, _MOST_SECONDS / 2)
        begin_s, end_s = record.t - window_s, record.t
        own, first, last = self._own, math.floor(begin_s), math.ceil(end_s) - 1
        if last == first + 1:  # as nearly always
            own[first] += cores * (last - begin_s)
            own[last] += cores * (end_s - last)
        else:
            for second in range(first, last + 1):
                own[second] += cores * (min(end_s, second + 1) - max(begin_s, second))
        self._own_until_s = max(self._own_until_s, end_s)
        self._seconds = max(self._seconds, math.ceil(2 * window_s))
        if len(self._own) > self._seconds:
            for second in sorted(self._own)[: len(self._own) - self._seconds]:
                del self._own[second]

    def add_machine(self, record: MachineMemory) -> None:
        """Fold a window of the machine."""
        if record.busy_cores is None:
            return
        before, self._latest = self._latest, record
        if before is None:
            return
        own = self._own_in(before)
        if own is not None and before.t - before.window_s >= self._begin_s:
            self._sum = self._sum.plus(before, own)
        for second in [second for second in self._own if second + 1 < record.t - record.window_s]:
            del self._own[second]

    def begin_steps(self, t: float) -> None:
        """The first training of the run has begun to make steps: ``mean`` is from now on."""
        self._begin_s = min(self._begin_s, t)

    def latest(self, cores: int | None, monitor: float) -> CoresTaken | None:
        """Cores taken in the latest window; None before one was measured. ``monitor``: cores that tuimon uses."""
        return self._taken(self._with_latest(_Sum(), -math.inf), cores, monitor)

    def mean(self, cores: int | None, monitor: float) -> CoresTaken | None:
        """Since the first step; None before a window since then was measured."""
        return self._taken(self._with_latest(self._sum, self._begin_s), cores, monitor)

    def _with_latest(self, found: _Sum, since_s: float) -> _Sum:
        """With the latest window, if that was measured and began since a moment."""
        record = self._latest
        own = self._own_in(record) if record is not None else None
        if record is None or own is None or record.t - record.window_s < since_s:
            return found
        return found.plus(record, own)

    def _own_in(self, record: MachineMemory) -> float | None:
        """Cores that the run used in a window of the machine, as far as its own windows reach; None where none does."""
        begin_s, end_s = record.t - record.window_s, min(record.t, self._own_until_s)
        if end_s <= begin_s:
            return None
        seconds = range(math.floor(begin_s), math.ceil(end_s))
        parts = (self._own.get(each, 0.0) * (min(end_s, each + 1) - max(begin_s, each)) for each in seconds)
        return sum(parts) / (end_s - begin_s)

    def _taken(self, of: _Sum, cores: int | None, monitor: float) -> CoresTaken | None:
        if not of.seconds > 0:
            return None
        busy, stolen = of.busy / of.seconds, of.stolen / of.seconds
        return CoresTaken(
            others=max(0.0, busy - of.own / of.seconds - monitor),
            idle=max(0.0, cores - busy - stolen) if cores is not None else None,
            stolen=stolen,
            held=of.held / of.seconds,
            limit=self._latest.cpu_limit_cores if self._latest is not None else None,
        )


def _own_cores(record: Threads) -> float:
    """Cores that a process used; where a thread's CPU is unknown, as its known ones, or those of a start."""
    if record.cpu_ratio is not None:
        return record.cpu_ratio
    known = [row.cpu_ratio * row.count for row in record.threads if row.cpu_ratio is not None]
    return sum(known) if known else _STARTING_CORES
