"""The picture of a run: what views and rules ask."""

from __future__ import annotations

from tuimon.records import Process, Threads
from tuimon.session.fold import Fold
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
from tuimon.session.samples.inferred import inferred_phases
from tuimon.session.samples.window import HotSpots
from tuimon.session.sampling import Sampling
from tuimon.session.steps import StepStats
from tuimon.torch_code import LOAD_HOOK


class Session(Fold):
    """The current picture of one run.

    ``add`` every record in order; ask at any time. Single-threaded, no clock, no I/O: live, replay and tests are the
    same fold.
    """

    # -- processes

    def processes(self) -> list[Process]:
        """All processes of the run, trainers first, ended ones last."""
        trainers = self.trainers()
        known = self._threads.processes
        first = [known[pid] for pid in trainers if pid in known]
        rest = sorted((p for p in known.values() if p.pid not in trainers), key=lambda p: (p.ended, p.start_unix_s))
        return first + rest

    def trainers(self) -> list[int]:
        """Processes whose markers show backwards or updates, by rank; without any, the process attached to."""
        known = self._threads.processes
        found = [pid for pid, stats in self._steps.items() if stats.trains]
        if not found:
            found = [p.pid for p in known.values() if p.role == "trainer"]
        return sorted(found, key=lambda pid: _rank_key(known.get(pid), pid))

    def trainer(self) -> int | None:
        """The process in focus: the first trainer that lives, or the run's root while none is known."""
        trainers = self.trainers()
        known = self._threads.processes
        living = [pid for pid in trainers if pid not in known or not known[pid].ended]
        if living or trainers:
            return (living or trainers)[0]
        return self.header.pid if self.header and self.header.pid else None

    def workers(self, pid: int) -> list[Process]:
        """Live DataLoader workers of a process."""
        return self._threads.workers(pid)

    def had_workers(self, pid: int) -> bool:
        """Whether a process ever had DataLoader workers."""
        return self._threads.had_workers(pid)

    def process(self, pid: int) -> Process | None:
        """What is known of a process."""
        return self._threads.processes.get(pid)

    # -- steps and phases

    def phases(self, pid: int) -> PhaseTable | None:
        """Phase breakdown of a process over the last 30 s; None before the first step.

        Without markers the shares are inferred from its main thread's stack samples.
        """
        stats = self._steps.get(pid)
        if stats is None:
            return self._inferred(pid)
        hotspots = self._hotspots.get(pid)
        gpu = self._gpu_time.of(pid)
        split = hotspots.between_shares() if hotspots else None
        return stats.table(stats.recent(), split, gpu.shares(self.now_s) if gpu else None)

    def steps(self, pid: int) -> StepSummary | None:
        """Step count, rate and times of a process over the last 30 s.

        Without markers: None, or nothing but a rate that the order of samples tells (``estimated``).
        """
        stats = self._steps.get(pid)
        return stats.summary(stats.recent()) if stats else self._estimated_steps(pid)

    def _estimated_steps(self, pid: int) -> StepSummary | None:
        process = self._threads.processes.get(pid)
        per_second = self._sampler.steps_per_second(pid, self.now_s)
        if per_second is None or (process is not None and process.markers):
            return None
        return StepSummary(0, per_second, None, None, None, None, 0, estimated=True)

    def run_phases(self, pid: int) -> PhaseTable | None:
        """As ``phases``, over the whole run without its warm-up."""
        stats = self._steps.get(pid)
        if stats is None:
            return self._inferred(pid)
        hotspots = self._hotspots.get(pid)
        gpu = self._gpu_time.of(pid)
        split = hotspots.between_shares() if hotspots else None
        return stats.table(stats.whole_run(), split, gpu.run_shares() if gpu else None)

    def run_steps(self, pid: int) -> StepSummary | None:
        """As ``steps``, over the whole run without its warm-up."""
        stats = self._steps.get(pid)
        return stats.summary(stats.whole_run()) if stats else None

    def step_history(self, pid: int) -> list[float | None]:
        """Mean step time in ms, one value a window, oldest first; None where no step ended."""
        stats = self._steps.get(pid)
        return list(stats.history) if stats else []

    def phase_history(self, pid: int, last: int) -> list[tuple[float, ...] | None]:
        """The last so many of ``step_history``, each split into the parts of ``steps.STACKED``."""
        stats, hotspots = self._steps.get(pid), self._hotspots.get(pid)
        return stats.phase_history(hotspots.between_shares() if hotspots else None, last) if stats else []

    def step_stats(self, pid: int) -> StepStats | None:
        """Everything folded from a process's steps (for rules)."""
        return self._steps.get(pid)

    def _inferred(self, pid: int) -> PhaseTable | None:
        process = self._threads.processes.get(pid)
        if process is not None and process.markers:
            return None  # its markers will tell, from the first step on
        hotspots = self._hotspots.get(pid)
        return inferred_phases(pid, hotspots.phase_counts()) if hotspots else None

    # -- time on the GPU's clock

    def gpu_time(self, pid: int) -> GpuTimeRow | None:
        """A process's steps on the GPU's clock over the last 30 s; None where none were timed."""
        stats = self._gpu_time.of(pid)
        return stats.row(self.now_s) if stats else None

    def torch_memory(self, pid: int) -> list[TorchMemoryRow]:
        """What torch's allocator holds in a process, by device."""
        stats, process = self._gpu_time.of(pid), self._threads.processes.get(pid)
        return stats.memory(process.gpu_uuids if process else ()) if stats else []

    # -- threads, stacks, devices

    def threads(self) -> list[ThreadRow]:
        """All threads of the run: trainers' first, their workers next, then the rest."""
        order: list[int] = []
        for pid in self.trainers():
            order += [pid, *(worker.pid for worker in self.workers(pid))]
        return list(self._threads.rows(order, self._hotspots, self._gil))

    def threads_of(self, pid: int) -> list[ThreadRow]:
        """The threads of one process, as they were in its latest window."""
        return list(self._threads.rows_of(pid, self._hotspots.get(pid), self._gil))

    def same_stack_s(self, pid: int, tid: int) -> float | None:
        """For how long all samples of a thread have shown one and the same stack; None where it was not sampled.

        In seconds, up to its latest window: long for a thread that hangs, waits, or is busy within one call.
        """
        hotspots = self._hotspots.get(pid)
        return hotspots.same_stack_s(tid) if hotspots else None

    def sampling(self) -> Sampling | None:
        """How well the training processes are sampled, and at what cost; None before the first window."""
        cost = self.cost.sampler_cpu_ratio if self.cost else None
        return self._sampler.sampling(self._focus_first(), self.now_s, cost)

    def run_sampling(self) -> Sampling | None:
        """As ``sampling``, over the whole run."""
        return self._sampler.run_sampling(self._focus_first(), self.now_s)

    def _focus_first(self) -> list[int]:
        focus = self.trainer()
        trainers = self.trainers() or ([focus] if focus is not None else [])
        return sorted(trainers, key=lambda pid: pid != focus)

    def process_threads(self, pid: int) -> Threads | None:
        """The latest thread figures of one process."""
        return self._threads.of(pid)

    def hotspots(self, pid: int) -> HotSpots | None:
        """Stack samples of one process."""
        return self._hotspots.get(pid)

    def hot_lines(self, pid: int, phase: str | None = None) -> list[HotLine]:
        """Innermost user lines of a process's main thread in a phase (None: all), most samples first."""
        hotspots = self._hotspots.get(pid)
        return hotspots.hot_lines(phase) if hotspots else []

    def loaders(self, pid: int) -> tuple[LoaderRow, ...]:
        """The DataLoaders of a process over the last 30 s in which they were used, those for training first."""

        def ended(worker: int) -> bool:
            process = self._threads.processes.get(worker)
            return process is not None and process.ended

        def hottest(worker: int) -> HotLine | None:
            hotspots = self._hotspots.get(worker)
            if hotspots is None:
                return None
            lines = hotspots.hot_lines_under(LOAD_HOOK) if worker == pid else hotspots.hot_lines()
            return next(iter(lines), None)

        return self._loaders.rows(pid, self.now_s, ended, hottest)

    def gpus(self) -> list[GpuRow]:
        """The GPUs of the machine, those the run uses first."""
        focus = self.trainer()
        process = self._threads.processes.get(focus) if focus is not None else None
        stats = self._steps.get(focus) if focus is not None else None
        steps_per_s = stats.recent().per_second() if stats else None
        return self._devices.rows(self.now_s, self._threads.processes.values(), process, steps_per_s)


def _rank_key(process: Process | None, pid: int) -> tuple[int, int]:
    return (process.rank if process and process.rank is not None else 1 << 30, pid)
