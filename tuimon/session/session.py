"""The state of one run, as views and rules query it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tuimon.records import Place, Threads
from tuimon.session.counter_means import SteppingSpan
from tuimon.session.gpu_time import GpuShares
from tuimon.session.processes.core_use import CoresTaken, CoreUse
from tuimon.session.processes.core_waits import Waits
from tuimon.session.ranks.shared_steps import SharedStep
from tuimon.session.ranks.stats import RankStats
from tuimon.session.ranks.waits import RankTimes
from tuimon.session.rows import (
    GpuRow,
    GpuTimeRow,
    HotLine,
    LoaderRow,
    ThreadRow,
    TorchMemoryRow,
)
from tuimon.session.samples.process_samples import ProcessSamples
from tuimon.session.sampling import GilHeld, Sampling
from tuimon.session.step_queries import StepQueries
from tuimon.session.windows import WINDOW_S
from tuimon.torch_code import LOAD_HOOK


class Session(StepQueries):
    """One run as its records show it.

    ``add`` every record in order; query at any time. Single-threaded, no clock, no I/O: live, replay and tests are the
    same fold. The questions about processes are in ``focus.py``, those about steps in ``step_queries.py``.
    """

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
        return self._ranks.stats(pid).shared.latest()

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

    def gil_held_in(self, pid: int, tid: int, place: Place) -> GilHeld | None:
        """How often in the last minute's steps a thread held the GIL in a place's function; None if unknown."""
        return self._gil.held_in(pid, tid, place)

    def same_stack_s(self, pid: int, tid: int) -> float | None:
        """How long, up to its latest window, a thread's samples have all shown one stack; None without samples."""
        sampled = self._process_samples.get(pid)
        return sampled.threads.same_stack_s(tid) if sampled else None

    def sampling(self) -> Sampling | None:
        """How well the training processes are sampled, and at what cost; None before the first window."""
        cost = self.cost.sampler_cpu_ratio if self.cost else None
        return self._sampler.sampling(self._focus_first(), self.now_s, cost)

    def run_sampling(self) -> Sampling | None:
        """Like ``sampling``, over the whole run; its cost on a node."""
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

    def cores_taken(self, node: int | None = None) -> CoresTaken | None:
        """Cores of a node (None: the one in focus) that the run could not have lately; None where unknown."""
        return self._core_use(node).latest(*self._cores_and_monitor(node))

    def cores_taken_since(self, since_s: float) -> CoresTaken | None:
        """The same on the node in focus over the last 30 s, or less since a moment; None where no window is."""
        return self._core_use(None).since(since_s, *self._cores_and_monitor(None))

    def waits_since(self, since_s: float) -> Waits | None:
        """What the threads of the run there waited for a core over the same time; None without a whole second."""
        return self.nodes.tables_of(self.focus_node).recent_waits.since(since_s)

    def _core_use(self, node: int | None) -> CoreUse:
        return self.nodes.tables_of(self.focus_node if node is None else node).core_use

    def _cores_and_monitor(self, node: int | None) -> tuple[int | None, float]:
        """The number of a node's cores, and those that tuimon uses: of several, the one that reported last."""
        cores = self.nodes.cpu_counts.get(self.focus_node if node is None else node)
        return cores, self.cost.cpu_ratio if self.cost is not None else 0.0

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
        """Like ``loaders``, without the workers' hottest lines, which take longer than all the rest."""
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
        per_second = self.step_totals(focus).per_second() if focus is not None else None
        processes = [self._processes.known[pid] for pid in self._pids_on(node)]
        devices = self.nodes.tables_of(node).devices
        return devices.rows(self.now_s, processes, process, per_second, self._spans_of_means())

    def gpu_windows_within(self, uuid: str, begin_s: float, end_s: float) -> slice:
        """Which windows of the histories of a GPU of the node in focus lie between two moments."""
        return self.nodes.tables_of(self.focus_node).devices.windows_within(uuid, begin_s, end_s)

    def utilisations(self, uuids: Collection[str]) -> dict[str, float | None]:
        """The utilisation of these GPUs of all nodes, the mean that ``gpus`` has."""
        return self.nodes.utilisations(uuids, self._spans_of_means())

    def _spans_of_means(self) -> list[SteppingSpan]:
        return self.stepping_spans() or [SteppingSpan(self.now_s - WINDOW_S, self.now_s)]

    def stepping_spans(self) -> list[SteppingSpan]:
        """When the process in focus made the steps that its phases are of; none before the first, or unmarked."""
        focus = self.trainer()
        stats = self._steps.get(focus) if focus is not None else None
        return stats.recent_spans() if stats is not None else []
