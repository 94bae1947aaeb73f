"""DataLoaders and their workers, folded from Loader records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from tuimon.records import Loader, LoaderFacts, LoaderWorker, MeasuredBatches
from tuimon.session.rows import EpochRow, HotLine, LoaderRow, LoaderWorkerRow
from tuimon.session.series import Series
from tuimon.session.windows import WINDOW_S, Span, new_history, weighted_median

#: Most loaders of a process that are remembered, those used last: some programs make one for every epoch.
_LOADERS = 64
#: Most workers of a loader, those that reported last.
_WORKERS = 256
#: Most reports of one worker that are kept.
_REPORTS = 64
#: Windows of each length that a series holds: those of the last 30 s as they were recorded.
_ROWS = 32
#: A worker without a report for this long is gone: of 256 workers, each reports once a minute.
_WORKER_SILENT_S = 90.0


class _Stretch(NamedTuple):
    """Windows that follow one another; a row of a ``Series``."""

    begin_s: float
    end_s: float
    used_s: float  # windows in which the loader was used
    fetches: float  # that were timed
    counted: float  # beside these
    wait_ns: float
    p95_sum_ns: float  # the p95 of its window, of each fetch that has one
    p95_fetches: float
    ready_fetches: float
    ready_total: float
    ready_none: float
    held_ns: float
    held_ms2: float

    @property
    def window_s(self) -> float:
        """Seconds from its beginning to its end."""
        return self.end_s - self.begin_s


def _stretch_of(record: Loader) -> _Stretch:
    measured = record.fetches if record.p95_ns is not None else 0
    return _Stretch(
        record.t - record.window_s,
        record.t,
        record.window_s,
        record.fetches,
        record.counted,
        record.wait_ns,
        (record.p95_ns or 0.0) * measured,
        measured,
        record.ready_fetches,
        record.ready_total,
        record.ready_none,
        record.held_ns,
        record.held_ms2,
    )


class _WorkerSums(Struct):
    """Sums over a worker's reports."""

    reports: int = 0  # that hold its figures
    batches: int = 0
    items_ms: float = 0.0
    collate_ms: float = 0.0
    wait_ms: float = 0.0
    handed_ms: float | None = None  # where it is known apart from the wait

    def add_report(self, report: LoaderWorker) -> None:
        if report.batches is None:
            return
        self.reports += 1
        self.batches += report.batches
        self.items_ms += report.items_ms or 0.0
        self.collate_ms += report.collate_ms or 0.0
        self.wait_ms += report.wait_ms or 0.0
        if report.hand_over_ms is not None:
            self.handed_ms = (self.handed_ms or 0.0) + report.hand_over_ms


class _Worker:
    """One worker's reports of the last 30 s."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.reports: deque[tuple[float, LoaderWorker]] = deque(maxlen=_REPORTS)

    def add_report(self, t: float, report: LoaderWorker) -> None:
        self.reports.append((t, report))
        while self.reports[0][0] < t - WINDOW_S:
            self.reports.popleft()


def _worker_row(pid: int, name: str, sums: _WorkerSums, hot: HotLine | None, ended: bool) -> LoaderWorkerRow:
    batches, span_ms = sums.batches, sums.items_ms + sums.collate_ms + sums.wait_ms + (sums.handed_ms or 0.0)
    if not sums.reports:
        return LoaderWorkerRow(pid, name, None, None, None, None, None, None, hot, ended)
    return LoaderWorkerRow(
        pid=pid,
        name=name,
        busy_ratio=(sums.items_ms + sums.collate_ms) / span_ms if span_ms else None,
        batches_per_s=1000 * batches / span_ms if span_ms else None,
        items_ms=sums.items_ms / batches if batches else None,
        collate_ms=sums.collate_ms / batches if batches else None,
        wait_ms=sums.wait_ms / batches if batches else None,
        hand_over_ms=sums.handed_ms / batches if batches and sums.handed_ms is not None else None,
        hot=hot,
        ended=ended,
    )


class LoaderStats:
    """One loader of one process."""

    def __init__(self, pid: int, number: int, worker_name: Callable[[int], str]) -> None:
        self.pid = pid
        self._worker_name = worker_name
        self.number = number
        self.facts: LoaderFacts | None = None
        self.latest: Loader | None = None  # the newest window
        self._batches: MeasuredBatches | None = None  # of the whole run
        self._epoch = EpochRow(0, None, None)
        self._fetches = 0
        self._series = Series(_Stretch, _ROWS)
        # of the whole run: an epoch may take hours
        self._first_end_s: float | None = None
        self._starts = self._start_ns = self._first_ns = self._ends = self._end_ns = self._data_ns = 0
        self._workers: dict[int, _Worker] = {}  # by pid
        self._run_by_number: dict[int, _WorkerSums] = {}  # each epoch may start its workers anew
        self._history: deque[float | None] = new_history()

    def add_window(self, record: Loader) -> None:
        """Fold one window."""
        previous = self.latest
        if previous is not None and record.t - record.window_s > previous.t + record.window_s / 2:
            self._history.append(None)  # it was not used for a while
        self.latest = record
        self._series.append(_stretch_of(record))
        self.facts = record.facts or self.facts
        if record.batches is not None:
            self._batches = record.batches if self._batches is None else self._batches.plus(record.batches)
        self._note_epoch(record)
        self._fetches += record.fetches + record.counted
        self._starts += record.starts
        self._start_ns += record.start_ns
        self._first_ns += record.start_ns - record.iter_ns
        if record.epochs and self._first_end_s is None:
            self._first_end_s = record.t
        self._ends += record.ends
        self._end_ns += record.end_ns
        waited_ns = record.wait_ns * (record.fetches + record.counted) // max(1, record.fetches)
        self._data_ns += waited_ns + record.iter_ns + record.end_ns
        mean = record.ready_total / record.ready_fetches if record.ready_fetches else None
        self._history.append(mean)
        for report in record.workers:
            worker = self._workers.pop(report.pid, None) or _Worker(report.number)
            self._workers[report.pid] = worker  # the latest last
            worker.add_report(record.t, report)
            self._run_by_number.setdefault(report.number, _WorkerSums()).add_report(report)
        while self._workers:
            pid, silent_longest = next(iter(self._workers.items()))
            if silent_longest.reports[-1][0] >= record.t - _WORKER_SILENT_S and len(self._workers) <= _WORKERS:
                break
            del self._workers[pid]

    def _note_epoch(self, record: Loader) -> None:
        done, given, length = self._epoch
        if record.epochs or record.fetches or record.counted:
            given = record.given
        self._epoch = EpochRow((done or 0) + record.epochs, given, record.length or length)

    def row(
        self, now_s: float, ended: Callable[[int], bool], hot: Callable[[int], HotLine | None], span: Span | None
    ) -> LoaderRow | None:
        """Its row over the last 30 s in which it was used, or over a span; None before its facts are known."""
        latest, facts = self.latest, self.facts
        if latest is None or facts is None:
            return None
        records = self._series.rows(span or Span(latest.t - WINDOW_S))
        fetches = sum(record.fetches for record in records)
        known = sum(record.ready_fetches for record in records)
        span_s = sum(record.used_s for record in records)
        wait_ms = sum(record.wait_ns for record in records) / 1e6
        held_ms = sum(record.held_ns for record in records) / 1e6
        p95_ns = weighted_median(
            (each.p95_sum_ns / each.p95_fetches, each.p95_fetches) for each in records if each.p95_fetches
        )
        return LoaderRow(
            latest=latest,
            facts=facts,
            idle_s=max(now_s - latest.t, 0.0),
            fetches_per_s=sum(r.fetches + r.counted for r in records) / span_s if span_s else None,
            wait_ms=wait_ms / fetches if fetches else None,
            wait_p95_ms=p95_ns / 1e6 if p95_ns is not None else None,
            starts=self._starts,
            start_s=self._start_ns / 1e9 / self._starts if self._starts else None,
            first_s=self._first_ns / 1e9 / self._starts if self._starts else None,
            end_s=self._end_ns / 1e9 / self._ends if self._ends else None,
            start_share=(self._start_ns + self._end_ns) / self._data_ns if self._starts and self._data_ns else None,
            ready_mean=sum(record.ready_total for record in records) / known if known else None,
            ready_none_ratio=sum(record.ready_none for record in records) / known if known else None,
            ready_history=tuple(self._history),
            worker_rows=self._worker_rows(ended, hot, span is not None),
            batches=self._batches,
            fetches=self._fetches,
            epoch=self._epoch if self._epoch.done or self._epoch.given is not None else None,
            first_end_s=self._first_end_s,
            held_ms=held_ms / fetches if fetches else None,
            late_ms=sum(record.held_ms2 for record in records) / held_ms if held_ms else None,
        )

    def _worker_rows(
        self, ended: Callable[[int], bool], hot: Callable[[int], HotLine | None], whole_run: bool
    ) -> tuple[LoaderWorkerRow, ...]:
        """The latest worker of each number, a live one before others, with what all of its number have reported."""
        latest = {worker.number: pid for pid, worker in self._workers.items()}
        live = {worker.number: pid for pid, worker in self._workers.items() if not ended(pid)}
        sums = self._run_by_number if whole_run else self._window_by_number()
        return tuple(
            _worker_row(pid, self._name(pid), sums[number], hot(pid), ended(pid))
            for number, pid in sorted((latest | live).items())
        )

    def _name(self, pid: int) -> str:
        return "main" if pid == self.pid else self._worker_name(pid)

    def _window_by_number(self) -> dict[int, _WorkerSums]:
        found: dict[int, _WorkerSums] = {}
        since_s = self.latest.t - WINDOW_S if self.latest is not None else 0.0
        for worker in self._workers.values():
            sums = found.setdefault(worker.number, _WorkerSums())
            for t, report in worker.reports:
                if t >= since_s:
                    sums.add_report(report)
        return found


class LoaderTable:
    """The loaders of all processes."""

    def __init__(self, worker_name: Callable[[int], str]) -> None:
        self._worker_name = worker_name
        self._loaders: dict[int, dict[int, LoaderStats]] = {}  # by process, then by number

    def add_loader(self, record: Loader) -> None:
        """Fold one record."""
        own = self._loaders.setdefault(record.pid, {})
        stats = own.pop(record.number, None) or LoaderStats(record.pid, record.number, self._worker_name)
        if len(own) >= _LOADERS:
            del own[next(iter(own))]
        own[record.number] = stats  # the one used last is the last
        stats.add_window(record)

    def forget(self, pid: int) -> None:
        """Drop the loaders of a process."""
        self._loaders.pop(pid, None)

    def rows(
        self,
        pid: int,
        now_s: float,
        ended: Callable[[int], bool],
        hot: Callable[[int], HotLine | None],
        span: Span | None = None,
    ) -> tuple[LoaderRow, ...]:
        """The loaders of a process, over the last 30 s or over a span: those for training first."""
        stats = self._loaders.get(pid, {}).values()
        rows = [row for loader in stats if (row := loader.row(now_s, ended, hot, span)) is not None]
        return tuple(sorted(rows, key=lambda row: (row.latest.role == "eval", row.latest.number)))
