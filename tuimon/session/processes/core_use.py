"""Who has the cores of a machine besides the run: other programs, other guests of its host, a CPU limit."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from msgspec import Struct

from tuimon.records import MachineMemory, Threads
from tuimon.session.series import Series
from tuimon.session.windows import Span

#: Seconds for which the run's own use is held: more than two windows of the machine. Of a long log, whose windows are
#: merged, twice the longest, and no more than so many.
_SECONDS = 32
_MOST_SECONDS = 1024
#: Windows of each length that a series holds.
_ROWS = 32
#: A process whose CPU is not known yet has begun just now: no more than a core, as one thread loads its code.
_STARTING_CORES = 1.0


class CoresTaken(Struct, frozen=True, gc=False):
    """Cores that the run could not have over a time."""

    others: float  # used by programs that are neither the run's nor tuimon
    idle: float | None  # used by nobody; None where the number of cores is unknown
    stolen: float = 0.0  # that the host of a virtual machine gave to others meanwhile
    held: float = 0.0  # that the CPU limit of a control group kept from the run's threads, which were ready to run
    limit: float | None = None  # that limit


class _Used(NamedTuple):
    """Core-seconds of windows of the machine; a row of a ``Series``."""

    begin_s: float
    end_s: float
    seconds: float
    busy: float
    own: float
    stolen: float
    held: float


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
        self._latest: MachineMemory | None = None
        self._series = Series(_Used, _ROWS)  # but for the latest window, while windows of processes may come to it

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
        if (before := self._latest_used()) is not None:
            self._series.append(before)
        if self._latest is not None:
            for second in [second for second in self._own if second + 1 < record.t - record.window_s]:
                del self._own[second]
        self._latest = record

    def begin_steps(self, t: float) -> None:
        """A training begins to make steps: a span may begin here."""
        self._series.keep_apart(t)

    def over(self, span: Span | None, cores: int | None, monitor: float) -> CoresTaken | None:
        """Cores taken in a span, None: in the latest window; None before one was measured in it.

        ``monitor``: cores that tuimon uses.
        """
        latest = self._latest_used()
        sums = self._series.over(span) if span is not None else None
        if latest is not None and (span is None or span.begin_s <= (latest.begin_s + latest.end_s) / 2 <= span.end_s):
            sums = self._series.joined((sums, latest)) if sums is not None else latest
        if sums is None or not sums.seconds > 0:
            return None
        busy, stolen = sums.busy / sums.seconds, sums.stolen / sums.seconds
        return CoresTaken(
            others=max(0.0, busy - sums.own / sums.seconds - monitor),
            idle=max(0.0, cores - busy - stolen) if cores is not None else None,
            stolen=stolen,
            held=sums.held / sums.seconds,
            limit=self._latest.cpu_limit_cores if self._latest is not None else None,
        )

    def _latest_used(self) -> _Used | None:
        """The latest window, if what the run used in it is known."""
        record = self._latest
        own = self._own_in(record) if record is not None else None
        if record is None or own is None:
            return None
        cores = (record.busy_cores, own, record.stolen_cores, record.held_cores)
        used = ((each or 0.0) * record.window_s for each in cores)
        return _Used(record.t - record.window_s, record.t, record.window_s, *used)

    def _own_in(self, record: MachineMemory) -> float | None:
        """Cores that the run used in a window of the machine, as far as its own windows reach; None where none does."""
        begin_s, end_s = record.t - record.window_s, min(record.t, self._own_until_s)
        if end_s <= begin_s:
            return None
        seconds = range(math.floor(begin_s), math.ceil(end_s))
        parts = (self._own.get(each, 0.0) * (min(end_s, each + 1) - max(begin_s, each)) for each in seconds)
        return sum(parts) / (end_s - begin_s)


def _own_cores(record: Threads) -> float:
    """Cores that a process used; where a thread's CPU is unknown, as its known ones, or those of a start."""
    if record.cpu_ratio is not None:
        return record.cpu_ratio
    known = [row.cpu_ratio * row.count for row in record.threads if row.cpu_ratio is not None]
    return sum(known) if known else _STARTING_CORES
