"""A Session's tables over the whole steady part of a run, for verdicts on all of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from tuimon.records import Process, Record, Threads
from tuimon.session.counter_means import SteppingSpan
from tuimon.session.gpu_time import GpuShares
from tuimon.session.processes.core_use import CoresTaken
from tuimon.session.processes.thread_means import ThreadMeans
from tuimon.session.ranks.shared_steps import SharedStep
from tuimon.session.ranks.stats import MainThread
from tuimon.session.ranks.table import Held, sorted_samples
from tuimon.session.ranks.waits import NO_SAMPLES, RankTimes
from tuimon.session.rows import GpuTimeRow, LoaderRow, PhaseTable, StepSummary, ThreadRow
from tuimon.session.samples.process_samples import ProcessSamples
from tuimon.session.session import Session
from tuimon.session.steps.totals import Totals
from tuimon.session.windows import Span


class WholeRun(Session):
    """The tables of a Session, over the steady span instead of the last 30 s.

    It holds for the moment it is made at. How a run winds down is left out: its last workers count as they were.
    """

    def __init__(self, session: Session) -> None:
        vars(self).update(vars(session))
        self.held = Held()
        self._samples: dict[int, ProcessSamples | None] = {}
        focus = self.trainer()
        self._span = self.steady_span(focus) if focus is not None else Span()

    def add(self, record: Record) -> None:
        """Not supported: it is read only."""
        raise TypeError("records are added to the session itself")

    def process(self, pid: int) -> Process | None:
        """Alive, if it lived in the steady span."""
        known = super().process(pid)
        return self._as_it_was(known) if known is not None else None

    def processes(self) -> list[Process]:
        """Processes that lived in the steady span as alive, the others as they are."""
        return [self._as_it_was(process) for process in super().processes()]

    def _as_it_was(self, process: Process) -> Process:
        if not process.ended or process.t < self._span.begin_s:
            return process
        return structs.replace(process, ended=False)

    def phases(self, pid: int) -> PhaseTable | None:
        """Over the steady span."""
        return self.run_phases(pid)

    def steps(self, pid: int) -> StepSummary | None:
        """Over the steady span; where only their rate is estimated, over the last 30 s."""
        return self.run_steps(pid) or super().steps(pid)

    def step_totals(self, pid: int) -> Totals:
        """Over the steady span."""
        stats = self._steps.get(pid)
        return stats.whole_run() if stats is not None else Totals()

    def process_samples(self, pid: int) -> ProcessSamples | None:
        """Over the steady span."""
        if pid not in self._samples:
            self._samples[pid] = self.run_samples(pid)
        return self._samples[pid]

    def sort_rank_samples(self) -> None:
        """``rank_times`` sorts those of the steady span."""

    def rank_times(self, pid: int) -> RankTimes | None:
        """Over the steady span."""
        table, sampled, process = self.phases(pid), self.process_samples(pid), self.process(pid)
        totals, means = self.step_totals(pid), self._threads.means_of(pid)
        if table is None or table.inferred or not totals.count:
            return None
        return RankTimes(
            {row.name: row.ms_per_step or 0.0 for row in table.rows if row.name != "eval"},
            means.thread(self.training_tid(pid)) if means is not None else MainThread(),
            sorted_samples(sampled).phases if sampled is not None else NO_SAMPLES,
            on_gpu=process is not None and bool(process.gpu_uuids),
            gc_ms=(totals.gc_ns or 0) / totals.count / 1e6,
        )

    def shared_steps(self, pid: int) -> Sequence[SharedStep]:
        """Steps of the steady span, evenly spread."""
        return self._ranks.stats(pid).shared.since(self._span.begin_s)

    def workers(self, pid: int) -> list[Process]:
        """Its workers; when all have ended, those that were the last."""
        return super().workers(pid) or self._processes.last_workers(pid)

    def recent_workers(self, pid: int) -> list[Process]:
        """Workers that lived in the steady span."""
        return self._processes.workers_since(pid, self._span.begin_s)

    def process_threads(self, pid: int) -> Threads | None:
        """Means over the time that it lived for in the steady span."""
        means = self._threads.means_of(pid)
        return means.mean() if means is not None else None

    def live_threads(self, node: int | None = None) -> list[Threads]:
        """Means over the steady span of every process that lived in it; of one that came late or went early, less.

        Workers that lived one after the other, epoch by epoch, are one: the last of them.
        """
        pids = self._pids_on(self.focus_node if node is None else node)
        known = {pid: means for pid in pids if (means := self._threads.means_of(pid)) is not None}
        longest_s = max((means.window_s for means in known.values()), default=0.0)
        found = []
        for succession in self._processes.successions(known) if longest_s > 0 else ():
            if len(succession) == 1:
                means = known[succession[0]]
                found.append(means.mean(means.window_s / longest_s))
            else:
                lived_s = sum(self._processes.lived_s(pid, self._span.begin_s, self.now_s) for pid in succession)
                means = ThreadMeans.of_succession([known[pid] for pid in succession])
                found.append(means.mean(min(1.0, lived_s / longest_s)))
        return [threads for threads in found if threads is not None]

    def cores_taken(self, node: int | None = None) -> CoresTaken | None:
        """Since the first step."""
        return self._core_use(node).mean(*self._cores_and_monitor(node))

    def disk_ratio(self, pid: int) -> float | None:
        """Share of the windows at whose end it waited for the disk."""
        means = self._threads.means_of(pid)
        return means.disk_ratio if means is not None else None

    def threads_of(self, pid: int) -> list[ThreadRow]:
        """With means over the steady span."""
        return list(self._threads.rows_of(pid, self.process_samples(pid), self._gil, self.process_threads(pid)))

    def loaders(self, pid: int) -> tuple[LoaderRow, ...]:
        """Over the steady span."""
        return self._loaders.rows(
            pid, self.now_s, self._processes.has_ended, self._hottest_in(pid), self.steady_span(pid)
        )

    def loader_figures(self, pid: int) -> tuple[LoaderRow, ...]:
        """Over the steady span."""
        return self.loaders(pid)

    def gpu_time(self, pid: int) -> GpuTimeRow | None:
        """Over the steady span."""
        stats = self._gpu_time.of(pid)
        return stats.run_row() if stats is not None else None

    def gpu_shares(self, pid: int) -> GpuShares | None:
        """Over the steady span."""
        stats = self._gpu_time.of(pid)
        return stats.run_shares() if stats is not None else None

    def stepping_spans(self) -> list[SteppingSpan]:
        """Over the steady span."""
        focus = self.trainer()
        stats = self._steps.get(focus) if focus is not None else None
        return stats.run_spans() if stats is not None else []


def once_ended_whole(session: Session) -> Session:
    """The session while the run lasts; once it has ended, all of its steady part, as the verdict then is."""
    return WholeRun(session) if session.exit is not None else session
