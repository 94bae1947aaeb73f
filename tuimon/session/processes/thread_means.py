"""The mean use of the threads of one process over many windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct, structs

from tuimon.records import ThreadCpu, Threads
from tuimon.session.ranks.stats import MainThread

#: A thread that has ended is one of the process if it lived for this share of its windows at least: what a run ends
#: first as it winds down has worked beside all of its steps.
_MOST = 0.5


class _Sum(Struct):
    """Sums of one thread: seconds of CPU and of waiting for a core, and the windows in which they were measured."""

    cpu_s: float = 0.0
    cpu_of_s: float = 0.0
    delay_s: float = 0.0
    delay_of_s: float = 0.0
    latest: ThreadCpu | None = None


class ThreadMeans:
    """Sums over Threads records of one process; those of threads that lived for less than half of it are dropped."""

    def __init__(self) -> None:
        self.window_s = 0.0
        self._process = _Sum()
        self._childrens_s = 0.0  # CPU of its children that is in no record of theirs
        self._threads: dict[int, _Sum] = {}
        self._tids: list[int] = []  # of the latest window
        self._live: list[_Sum] = []  # theirs
        self._latest: Threads | None = None
        self._disk = 0  # windows at whose end the main thread waited for the disk
        self._stopped = 0  # ... was stopped
        self._windows = 0

    def add_window(self, record: Threads) -> None:
        """Add a window."""
        held = record.rss_bytes or (self._latest.rss_bytes if self._latest is not None else None)  # 0: it exits
        self._latest = record if held == record.rss_bytes else structs.replace(record, rss_bytes=held)
        self.window_s += record.window_s
        self._childrens_s += record.ended_cpu_s or 0.0
        self._windows += 1
        window_s, pid = record.window_s, record.pid
        if record.cpu_ratio is not None:
            self._process.cpu_s += record.cpu_ratio * window_s
            self._process.cpu_of_s += window_s
        tids = [row.tid for row in record.threads]
        if tids != self._tids or len(self._threads) != len(tids):
            self._note_threads(tids)
        for row, own in zip(record.threads, self._live, strict=True):
            own.latest = row
            cpu_ratio, delay_ratio = row.cpu_ratio, row.delay_ratio
            if cpu_ratio is not None:
                own.cpu_s += cpu_ratio * window_s
                own.cpu_of_s += window_s
            if delay_ratio is not None:
                own.delay_s += delay_ratio * window_s
                own.delay_of_s += window_s
            if row.tid == pid:
                self._disk += row.state == "disk"
                self._stopped += row.state == "stopped"

    def _note_threads(self, tids: list[int]) -> None:
        """These live now; of those that have ended, the ones that lived for half of the process are kept."""
        known, self._threads = self._threads, {}
        self._tids = tids
        self._live = [self._threads.setdefault(tid, known.get(tid) or _Sum()) for tid in tids]
        for tid, own in known.items():
            if tid not in self._threads and own.cpu_of_s >= _MOST * self._process.cpu_of_s > 0.0:
                self._threads[tid] = own

    @property
    def disk_ratio(self) -> float:
        """Share of the windows at whose end the main thread waited for the disk."""
        return self._disk / self._windows if self._windows else 0.0

    def thread(self, tid: int) -> MainThread:
        """A thread over all windows."""
        own = self._threads.get(tid)
        if own is None:
            return MainThread()
        cpu, delay = _ratio(own.cpu_s, own.cpu_of_s, 1.0), _ratio(own.delay_s, own.delay_of_s, 1.0)
        return MainThread(cpu, delay, self._stopped / self._windows)

    def mean(self, presence: float = 1.0) -> Threads | None:
        """All windows as one; ``presence``: the share of the time in question that the process lived for."""
        if self._latest is None:
            return None
        live = {row.tid for row in self._latest.threads}
        rows = [self._row(row, presence) for row in self._latest.threads]
        for tid, own in self._threads.items():
            if tid not in live and own.latest is not None:
                rows.append(self._row(own.latest, presence * min(1.0, own.cpu_of_s / self._process.cpu_of_s)))
        cpu_ratio = _ratio(self._process.cpu_s, self._process.cpu_of_s, presence)
        return structs.replace(
            self._latest,
            window_s=self.window_s,
            cpu_ratio=cpu_ratio,
            threads=rows,
            ended_cpu_s=presence * self._childrens_s,
        )

    @classmethod
    def of_succession(cls, each: Sequence[ThreadMeans]) -> ThreadMeans:
        """Means of processes that succeeded each other at the same work, as the last of them: workers, by epochs."""
        found = cls()
        found._latest = each[-1]._latest
        totals: dict[tuple[str, int], _Sum] = {}  # by name, and number among the threads of this name
        for means in each:
            found.window_s += means.window_s
            found._childrens_s += means._childrens_s
            _add(found._process, means._process)
            found._threads = {}
            numbers = Counter[str]()
            for row in means._latest.threads if means._latest is not None else ():
                total = totals.setdefault((row.name, numbers[row.name]), _Sum())
                _add(total, means._threads[row.tid])
                numbers[row.name] += 1
                found._threads[row.tid] = total
        return found

    def _row(self, row: ThreadCpu, presence: float) -> ThreadCpu:
        own = self._threads[row.tid]
        cpu, delay = _ratio(own.cpu_s, own.cpu_of_s, presence), _ratio(own.delay_s, own.delay_of_s, presence)
        return ThreadCpu(row.tid, row.name, cpu, row.state, delay, row.count)


def _add(total: _Sum, part: _Sum) -> None:
    total.cpu_s += part.cpu_s
    total.cpu_of_s += part.cpu_of_s
    total.delay_s += part.delay_s
    total.delay_of_s += part.delay_of_s
    total.latest = part.latest


def _ratio(seconds: float, of_s: float, presence: float) -> float | None:
    return presence * seconds / of_s if of_s else None
