"""The state of one run, as views and rules query it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tuimon.records import NO_TORCH_YET, Process, Threads
from tuimon.session.focus import FocusedTables
from tuimon.session.gpu.gpu_time import GpuShares
from tuimon.session.ranks.shared_steps import SharedStep
from tuimon.session.ranks.stats import RankStats
from tuimon.session.ranks.waits import RankTimes
from tuimon.session.rows import (
    GpuRow,
    GpuTimeRow,
    HotLine,
    LoaderRow,
    PhaseTable,
    StepSummary,
    ThreadRow,
    TorchMemoryRow,
)
from tuimon.session.samples.inferred_phases import inferred_phases
from tuimon.session.samples.process_samples import ProcessSamples
from tuimon.session.sampling import Sampling
from tuimon.session.steps.history import WindowBegin
from tuimon.session.steps.phase_table import phase_table
from tuimon.session.steps.split_shares import SplitShares
from tuimon.session.steps.steps import StepStats
from tuimon.session.steps.totals import Totals
from tuimon.session.windows import WINDOW_S, Span
from tuimon.torch_code import LOAD_HOOK

#: Seconds that the first markers may come later than two intervals: our choice, a busy machine's delay.
_MARKERS_WAIT_S = 2.0


class Session(FocusedTables):
    """One run as its records show it.

    ``add`` every record in order; query at any time. Single-threaded, no clock, no I/O: live, replay and tests are the
    same fold.
    """

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
        """Whether a process ever had DataLoader workers."""
        return self._processes.had_workers(pid)

    def process(self, pid: int) -> Process | None:
        """The latest record of a process."""
        return self._processes.known.get(pid)

    # -- steps and phases

    def phases(self, pid: int) -> PhaseTable | None:
        """Phase breakdown of a process over the last 30 s; None before the first step.

        Without markers the shares are inferred from its main thread's stack samples.
        """
        stats, gpu = self._steps.get(pid), self._gpu_time.of(pid)
        if stats is None:
            return self._inferred(pid, self._process_samples.get(pid))
        return phase_table(pid, stats.recent(), self._between_shares(pid), gpu.shares(self.now_s) if gpu else None)

    def run_phases(self, pid: int) -> PhaseTable | None:
        """As ``phases``, over the whole run without its warm-up."""
        stats, gpu, samples = self._steps.get(pid), self._gpu_time.of(pid), self.run_samples(pid)
        if stats is None:
            return self._inferred(pid, samples)
        split = samples.between_shares() if samples else None
        return phase_table(pid, stats.whole_run(), split, gpu.run_shares() if gpu else None)

    def steady_span(self, pid: int) -> Span:
        """What ``run_phases`` covers; of a process without steps of its own, that of the process in focus."""
        focus = self.trainer()
        stats = self._steps.get(pid) or (self._steps.get(focus) if focus is not None else None)
        return stats.steady_span() if stats is not None else Span()

    def run_samples(self, pid: int) -> ProcessSamples | None:
        """As ``process_samples``, over the steady span."""
        sampled = self._process_samples.get(pid)
        return sampled.over(self.steady_span(pid)) if sampled is not None else None

    def before_and_since(self, pid: int, t: float) -> tuple[ProcessSamples, ProcessSamples] | None:
        """As ``run_samples``, of the steady span up to a moment, and from then on; None without samples."""
        sampled, span = self._process_samples.get(pid), self.steady_span(pid)
        if sampled is None:
            return None
        return sampled.over(span._replace(end_s=t)), sampled.over(span._replace(begin_s=t))

    def both_ends(self, pid: int) -> tuple[ProcessSamples, ProcessSamples] | None:
        """As ``run_samples``, of the first and the last quarter of the steady span; None without samples."""
        sampled, span = self._process_samples.get(pid), self.steady_span(pid)
        quarter_s = (span.end_s - span.begin_s) / 4
        if sampled is None or math.isinf(quarter_s):
            return None
        return (
            sampled.over(span._replace(end_s=span.begin_s + quarter_s)),
            sampled.over(span._replace(begin_s=span.end_s - quarter_s)),
        )

    def step_totals(self, pid: int) -> Totals:
        """Sums over the steps of the last 30 s; without markers empty."""
        stats = self._steps.get(pid)
        return stats.recent() if stats is not None else Totals()

    def steps(self, pid: int) -> StepSummary | None:
        """Step count, rate and times of a process over the last 30 s.

        Without markers: None, or only a rate estimated from the order of its stack samples (``estimated``).
        """
        stats = self._steps.get(pid)
        return stats.summary(stats.recent()) if stats else self._estimated_steps(pid)

    def run_steps(self, pid: int) -> StepSummary | None:
        """As ``steps``, over the whole run without its warm-up; None without markers."""
        stats = self._steps.get(pid)
        return stats.summary(stats.whole_run()) if stats else None

    def step_history(self, pid: int) -> list[float | None]:
        """Mean step time in ms, one value a window, oldest first; None where no step ended."""
        stats = self._steps.get(pid)
        return list(stats.history.means_ms) if stats else []

    def work_history(self, pid: int) -> list[float | None]:
        """``step_history`` less what its threads waited for a core."""
        stats = self._steps.get(pid)
        return stats.history.work_ms() if stats else []

    def phase_history(self, pid: int, last: int) -> list[tuple[float, ...] | None]:
        """The ``last`` values of ``step_history``, each split into the parts of ``history.STACKED``."""
        stats = self._steps.get(pid)
        if stats is None:
            return []
        return stats.history.stacked_ms(stats.between_parts(self._between_shares(pid)), last)

    def between_parts(self, pid: int) -> tuple[float, ...]:
        """How the time that markers cannot split is divided into the parts of ``history.STACKED``."""
        stats = self._steps.get(pid)
        return tuple(stats.between_parts(self._between_shares(pid))) if stats else ()

    def begin_of_window(self, pid: int, window: int) -> WindowBegin | None:
        """When a window of ``step_history`` began, and with which step; None where no step ended in it."""
        stats = self._steps.get(pid)
        return stats.history.begin_of(window) if stats else None

    def step_stats(self, pid: int) -> StepStats | None:
        """Everything folded from a process's steps (for rules)."""
        return self._steps.get(pid)

    def _between_shares(self, pid: int) -> SplitShares | None:
        sampled = self._process_samples.get(pid)
        return sampled.between_shares() if sampled else None

    def _has_markers(self, pid: int) -> bool:
        process = self.process(pid)
        return process is not None and process.markers

    def _may_yet_have_markers(self, pid: int, sampled: ProcessSamples) -> bool:
        """Whether markers of what samples show are still to come: the first take up to two intervals."""
        process, interval_s = self.process(pid), self.header.interval_s if self.header else 1.0
        if process is None or process.markers_reason != NO_TORCH_YET:
            return False
        return self.now_s - sampled.begin_s < 2 * interval_s + _MARKERS_WAIT_S

    def _inferred(self, pid: int, sampled: ProcessSamples | None) -> PhaseTable | None:
        """Phases from stack samples, where there are no markers to wait for."""
        if sampled is None or self._has_markers(pid) or not sampled.has_whole_step:
            return None
        if self._may_yet_have_markers(pid, sampled):
            return None
        return inferred_phases(pid, sampled.phase_counts(), sampled.unsure_count())

    def _estimated_steps(self, pid: int) -> StepSummary | None:
        per_second = self._sampler.steps_per_second(pid, self.now_s)
        if per_second is None or self._has_markers(pid):
            return None
        return StepSummary(0, per_second, None, None, None, None, 0, estimated=True)

    # -- ranks

    def sort_rank_samples(self) -> None:
        """Sort the samples that ranks have got since, of some of them at a time."""
        trainers = self.trainers()
        if len(trainers) > 1:
            self._ranks.sort_newest(self._process_samples, self.frames, trainers)

    def rank_times(self, pid: int) -> RankTimes | None:
        """A rank's step over the last 30 s, and what its main thread does meanwhile; None before its first step."""
        return self._ranks.times(pid, self.process(pid))

    def rank_stats(self, pid: int) -> RankStats:
        """What is summed up of a rank."""
        return self._ranks.stats(pid)

    def shared_steps(self, pid: int) -> Sequence[SharedStep]:
        """Single steps of a rank, the latest, to be held against the same steps of the other ranks."""
        return tuple(self._ranks.stats(pid).shared.latest)

    # -- time on the GPU's clock

    def gpu_time(self, pid: int) -> GpuTimeRow | None:
        """A process's steps on the GPU's clock over the last 30 s; None where none were timed."""
        stats = self._gpu_time.of(pid)
        return stats.row(self.now_s) if stats else None

    def gpu_shares(self, pid: int) -> GpuShares | None:
        """Shares of a process's phases on the GPU's clock over the last 30 s; None where no step was timed."""
        stats = self._gpu_time.of(pid)
        return stats.shares(self.now_s) if stats else None

    def torch_memory(self, pid: int) -> list[TorchMemoryRow]:
        """What torch's allocator holds in a process, by device."""
        stats, process = self._gpu_time.of(pid), self.process(pid)
        return stats.memory(process.gpu_uuids if process else ()) if stats else []

    # -- threads, stacks, devices

    def threads(self) -> list[ThreadRow]:
        """All threads on the node in focus: trainers' first, their workers next, then the rest."""
        order: list[int] = []
        for pid in self.trainers_here():
            order += [pid, *(worker.pid for worker in self.workers(pid))]
        return list(self._threads.rows(order, self._process_samples, self._gil, self.focus_node))

    def threads_of(self, pid: int) -> list[ThreadRow]:
        """The threads of one process, as they were in its latest window."""
        return list(self._threads.rows_of(pid, self._process_samples.get(pid), self._gil))

    def same_stack_s(self, pid: int, tid: int) -> float | None:
        """For how long, up to its latest window, a thread's samples have all shown one stack; None without samples."""
        sampled = self._process_samples.get(pid)
        return sampled.threads.same_stack_s(tid) if sampled else None

    def sampling(self) -> Sampling | None:
        """How well the training processes are sampled, and at what cost; None before the first window."""
        cost = self.cost.sampler_cpu_ratio if self.cost else None
        return self._sampler.sampling(self._focus_first(), self.now_s, cost)

    def run_sampling(self) -> Sampling | None:
        """As ``sampling``, over the whole run; its cost on a node."""
        sampling, nodes = self._sampler.run_sampling(self._focus_first(), self.now_s), len(self.nodes.known)
        if sampling is None or sampling.cpu_ratio is None or nodes < 2:
            return sampling
        return sampling._replace(cpu_ratio=sampling.cpu_ratio / nodes)

    def _focus_first(self) -> list[int]:
        focus = self.trainer()
        trainers = self.trainers() or ([focus] if focus is not None else [])
        return sorted(trainers, key=lambda pid: pid != focus)

    def process_threads(self, pid: int) -> Threads | None:
        """The latest thread figures of one process."""
        return self._threads.of(pid)

    def live_threads(self, node: int | None = None) -> list[Threads]:
        """The latest thread figures of every process on a node (None: the one in focus) that has not ended."""
        node = self.focus_node if node is None else node
        live = (self.process_threads(pid) for pid in self._pids_on(node) if not self._processes.has_ended(pid))
        return [threads for threads in live if threads is not None]

    def disk_ratio(self, pid: int) -> float | None:
        """How much of the time a process's main thread waits for the disk; at one moment, that is 0 or 1."""
        threads = self.process_threads(pid)
        main = next((row for row in threads.threads if row.tid == pid), None) if threads is not None else None
        return float(main.state == "disk") if main is not None else None

    def process_samples(self, pid: int) -> ProcessSamples | None:
        """Stack samples of one process."""
        return self._process_samples.get(pid)

    def hot_lines(self, pid: int, phase: str | None = None) -> list[HotLine]:
        """Innermost user lines of a process's main thread in a phase (None: all), most samples first."""
        sampled = self.process_samples(pid)
        return sampled.hot_lines(phase) if sampled else []

    def loaders(self, pid: int) -> tuple[LoaderRow, ...]:
        """The DataLoaders of a process over the last 30 s in which they were used, those for training first."""

        return self._loaders.rows(pid, self.now_s, self._processes.has_ended, self._hottest_in(pid))

    def loader_figures(self, pid: int) -> tuple[LoaderRow, ...]:
        """As ``loaders``, without the workers' hottest lines, which take longer than all the rest."""
        return self._loaders.rows(pid, self.now_s, self._processes.has_ended, lambda _: None)

    def _hottest_in(self, pid: int) -> Callable[[int], HotLine | None]:
        def hottest(worker: int) -> HotLine | None:
            sampled = self.process_samples(worker)
            if sampled is None:
                return None
            lines = sampled.hot_lines_under(LOAD_HOOK) if worker == pid else sampled.hot_lines()
            return next(iter(lines), None)

        return hottest

    def gpus(self, node: int | None = None) -> list[GpuRow]:
        """The GPUs of a node (None: the one in focus), those the run uses first."""
        node = self.focus_node if node is None else node
        focus = self.trainer()
        process = self.process(focus) if focus is not None else None
        stats = self._steps.get(focus) if focus is not None else None
        steps_per_s = stats.recent().per_second() if stats else None
        processes = [self._processes.known[pid] for pid in self._pids_on(node)]
        return self.nodes.tables_of(node).devices.rows(self.now_s, processes, process, steps_per_s)
