"""DataLoaders and their workers, folded from Loader records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from tuimon.bounds import Latest
from tuimon.records import Loader, LoaderFacts, MeasuredBatches
from tuimon.session.processes import RunProcesses
from tuimon.session.series import WHOLE_RUN, KeyNumbers, Series, Span, Stretch, weighted_median
from tuimon.session.stacks.samples import HotLine


class LoaderWorkerRow(Struct, frozen=True, gc=False):
    """One DataLoader worker over the last 30 s; times are means of a batch. None if not measured."""

    pid: int
    name: str
    busy_ratio: float | None  # share of time in items or collate
    batches_per_s: float | None
    items_ms: float | None
    collate_ms: float | None
    wait_ms: float | None  # for the trainer to request a batch
    hand_over_ms: float | None  # for its batch to be written to the pipe; None: part of wait_ms
    ended: bool = False
    cpu_ratio: float | None = None  # 1.0: one core; only if a view adds it
    hot: HotLine | None = None  # its hottest user line; only if a view adds it


class EpochRow(NamedTuple):
    """A loader's progress in its epochs; None if unknown."""

    done: int | None = None  # epochs that have ended
    given: int | None = None  # batches of the one under way
    length: int | None = None  # batches of an epoch


class LoaderRow(NamedTuple):
    """One DataLoader over the last 30 s in which it was used. None if not measured."""

    latest: Loader
    facts: LoaderFacts  # with 0 workers the training process makes the batches, and is the one row of worker_rows
    idle_s: float  # since it was last used
    fetches_per_s: float | None
    wait_ms: float | None  # mean of a fetch, as the trainer waits
    wait_p95_ms: float | None  # typical of a window
    starts: int  # epochs of the run that began with starting workers, or with resetting persistent ones
    start_s: float | None  # mean of an epoch: starting workers, until the first batch
    start_share: float | None  # share of these starts, and of ends, in all the time the run waited for it
    first_fetch_share: float | None  # the part of that share spent waiting for the first batch
    ready_mean: float | None
    ready_none_ratio: float | None  # share of fetches that found none ready
    ready_history: tuple[float | None, ...]  # mean of a window, oldest first
    ready_spans: tuple[tuple[float, float], ...]  # when these windows began and ended
    worker_rows: tuple[LoaderWorkerRow, ...]
    batches: MeasuredBatches | None = None  # those of the whole run that were measured
    epoch: EpochRow = EpochRow()
    fetches: int = 0  # of the whole run
    first_end_s: float | None = None  # when its first epoch ended
    held_ms: float | None = None  # mean wait of a fetch for its batch while later batches were ready
    late_ms: float | None = None  # how late such a batch typically is, weighted by the time lost

    @property
    def ready_most(self) -> int | None:
        """The number of batches that can be ready at once; None if the training process makes them."""
        return self.facts.workers * self.facts.prefetch if self.facts.workers and self.facts.prefetch else None


#: Windows of each length that a series holds: as many as the chart of ready batches shows ...
_ROWS = 128
#: ... and of what workers report: 64 ranks have hundreds of these.
_REPORT_ROWS = 16
#: The reports of a worker: batches, times of items, collate, waiting and handing over, reports with the last of these.
_FIGURES = 6


class _Stretch(NamedTuple):
    """Windows that follow one another; a row of a ``Series``."""

    begin_s: float = 0.0
    end_s: float = 0.0
    used_s: float = 0.0  # windows in which the loader was used
    fetches: float = 0.0  # that were timed
    counted: float = 0.0  # fetches that were only counted
    wait_ns: float = 0.0
    p95_sum_ns: float = 0.0  # over fetches, the p95 of the window of each that has one
    p95_fetches: float = 0.0
    ready_fetches: float = 0.0
    ready_total: float = 0.0
    ready_none: float = 0.0
    held_ns: float = 0.0
    held_ms2: float = 0.0
    starts: float = 0.0
    start_ns: float = 0.0
    iter_ns: float = 0.0
    end_ns: float = 0.0
    data_ns: float = 0.0  # time that the training waited for the loader, for whatever reason


def _worker_row(pid: int, name: str, figures: Sequence[int] | None, ended: bool) -> LoaderWorkerRow:
    """A worker's row; ``figures``: the sums of all reports under its number, as ``LoaderStats`` keeps them."""
    batches, *times_us, handed = figures or (0,) * _FIGURES
    items_ms, collate_ms, wait_ms, hand_over_ms = (us / 1e3 / batches if batches else None for us in times_us)
    span_us = sum(times_us)
    return LoaderWorkerRow(
        pid=pid,
        name=name,
        busy_ratio=(times_us[0] + times_us[1]) / span_us if span_us else None,
        batches_per_s=1e6 * batches / span_us if span_us else None,
        items_ms=items_ms,
        collate_ms=collate_ms,
        wait_ms=wait_ms,
        hand_over_ms=hand_over_ms if handed else None,
        ended=ended,
    )


class LoaderStats:
    """One loader of one process."""

    def __init__(self, first: Loader) -> None:
        self.latest = first  # the newest window
        self.facts: LoaderFacts | None = None
        self.batches: MeasuredBatches | None = None  # of the whole run
        self.fetches = 0  # of the whole run, timed or only counted
        self._epoch = EpochRow(0)
        self._series = Series(_Stretch, _ROWS)
        self._reported = Series(Stretch, _REPORT_ROWS)
        self._figures = KeyNumbers[int](_FIGURES)  # by the number of a worker; times in us
        self._first_end_s: float | None = None  # of an epoch
        self.workers = Latest[int, tuple[float, int]]()  # when each has reported last, and its number, by pid

    def add_window(self, record: Loader) -> None:
        self.latest, self.facts = record, record.facts or self.facts
        self.fetches += record.fetches + record.counted
        measured = record.fetches if record.p95_ns is not None else 0
        fetched_ns = record.wait_ns * (record.fetches + record.counted) // max(1, record.fetches)
        self._series.fold(
            record,
            used_s=record.window_s,
            p95_sum_ns=(record.p95_ns or 0.0) * measured,
            p95_fetches=measured,
            data_ns=fetched_ns + record.iter_ns + record.end_ns,
        )
        if record.batches is not None:
            self.batches = record.batches if self.batches is None else self.batches.plus(record.batches)
        done, given, length = self._epoch
        if record.epochs or record.fetches or record.counted:
            given = record.given
        self._epoch = EpochRow((done or 0) + record.epochs, given, record.length or length)
        if record.epochs and self._first_end_s is None:
            self._first_end_s = record.t
        reports = []
        for each in record.workers:
            self.workers[each.pid] = record.t, each.number
            if each.batches is not None:
                times_ms = each.items_ms, each.collate_ms, each.wait_ms, each.hand_over_ms
                times_us = [round(1e3 * (ms or 0.0)) for ms in times_ms]
                reports.append((each.number, each.batches, *times_us, each.hand_over_ms is not None))
        while self.workers:
            pid, (silent_s, _) = next(iter(self.workers.items()))
            if silent_s >= record.t - 90.0:  # else it is gone: of 256 workers, each reports once a minute
                break
            del self.workers[pid]
        if record.workers:
            self._reported.fold(record, self._figures.counts(reports))

    def row(
        self, now_s: float, span: Span, ended: Callable[[int], bool], name: Callable[[int], str]
    ) -> LoaderRow | None:
        """Its row over a span, or over the last seconds in which it was used; None before its facts are known."""
        latest, facts, run = self.latest, self.facts, self._series.over()
        if facts is None or run is None:
            return None
        sums = self._series.over(span) or _Stretch()
        fetches, known, held_ms = sums.fetches, sums.ready_fetches, sums.held_ns / 1e6
        # the latest worker of each number, a live one before others; its figures are of all workers of that number
        reported = {number: pid for pid, (_, number) in self.workers.items()}
        live = {number: pid for pid, (_, number) in self.workers.items() if not ended(pid)}
        counts = self._reported.counts(Span(max(span.begin_s, latest.t - span.last_s), span.end_s))
        figures = self._figures.figures(counts)
        measured = (row for row in self._series.rows(span) if row.p95_fetches)
        p95_ns = weighted_median((row.p95_sum_ns / row.p95_fetches, row.p95_fetches) for row in measured)
        course = self._series.course(WHOLE_RUN._replace(last_s=span.last_s), _ROWS)
        return LoaderRow(
            latest=latest,
            facts=facts,
            idle_s=max(now_s - latest.t, 0.0),
            fetches_per_s=(fetches + sums.counted) / sums.used_s if sums.used_s else None,
            wait_ms=sums.wait_ns / 1e6 / fetches if fetches else None,
            wait_p95_ms=p95_ns / 1e6 if p95_ns is not None else None,
            starts=int(run.starts),  # this and the next five cover the whole run: an epoch may take hours
            start_s=run.start_ns / 1e9 / run.starts if run.starts else None,
            start_share=(run.start_ns + run.end_ns) / run.data_ns if run.starts and run.data_ns else None,
            first_fetch_share=(run.start_ns - run.iter_ns) / (run.start_ns + run.end_ns) if run.start_ns else None,
            ready_mean=sums.ready_total / known if known else None,
            ready_none_ratio=sums.ready_none / known if known else None,
            ready_history=tuple([row.ready_total / row.ready_fetches if row.ready_fetches else None for row in course]),
            ready_spans=tuple([(row.begin_s, row.end_s) for row in course]),
            worker_rows=tuple(
                _worker_row(pid, "main" if pid == latest.pid else name(pid), figures.get(number), ended(pid))
                for number, pid in sorted((reported | live).items())
            ),
            batches=self.batches,
            epoch=self._epoch if self._epoch.done or self._epoch.given is not None else EpochRow(),
            fetches=self.fetches,
            first_end_s=self._first_end_s,
            held_ms=held_ms / fetches if fetches else None,
            late_ms=sums.held_ms2 / held_ms if held_ms else None,
        )


class Loaders(Latest[int, LoaderStats]):
    """The DataLoaders of one process by number, the one used last at the end."""

    def add_record(self, record: Loader) -> None:
        stats = self[record.number] = self.get(record.number) or LoaderStats(record)
        stats.add_window(record)

    def rows(
        self, now_s: float, span: Span, ended: Callable[[int], bool], name: Callable[[int], str]
    ) -> tuple[LoaderRow, ...]:
        """The loaders over a span: those for training first."""
        rows = [row for loader in self.values() if (row := loader.row(now_s, span, ended, name)) is not None]
        return tuple(sorted(rows, key=lambda row: (row.latest.role == "eval", row.latest.number)))


def worker_name(pid: int, processes: RunProcesses, loaders_of: Mapping[int, Loaders]) -> str:
    """``worker 2``, ``eval worker 2``; ``loader 1 worker 2`` if another loader of its purpose has workers.

    The number is torch's, ``get_worker_info().id``; before the loader has reported, it is the free place among the
    trainer's workers. At first nothing shows whether a loader trains or evaluates. Until then it is taken to have the
    purpose of any other loader, and no other loader is taken to have its purpose.
    """
    trainer, number = processes.trainer_and_number(pid)
    loaders = {of: loader for of, loader in loaders_of[trainer].items() if trainer not in loader.workers}
    own = next((of for of in reversed(loaders) if pid in loaders[of].workers), None)
    if own is None:
        return f"worker {number}"
    role, number = loaders[own].latest.role, loaders[own].workers[pid][1]
    others = (loader for of, loader in loaders.items() if of != own and role in (None, loader.latest.role))
    firsts = (first for loader in others for first, (_, number) in loader.workers.items() if number == 0)
    if any(processes.lived_together(pid, first) for first in firsts):
        return f"loader {own} worker {number}"
    return f"eval worker {number}" if role == "eval" else f"worker {number}"
