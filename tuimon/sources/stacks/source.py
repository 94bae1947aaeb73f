"""Stack samples: py-spy windows back to back on training processes, in rotation on their DataLoader workers."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct

from tuimon.proc.processes import is_alive, start_unix_s
from tuimon.proc.ring_facts import RawFrame
from tuimon.proc.target_files import TargetFiles
from tuimon.records import GIL_WINDOW_S, Frames, Gil, GilCount, GilFunction, Record, Stacks
from tuimon.sources.base import Problem, Source
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.stacks import failures, pyspy
from tuimon.sources.stacks.failures import NO_PROCESS, SamplingFailures
from tuimon.sources.stacks.frame_ids import FrameIds
from tuimon.sources.stacks.in_process import InProcessSampler
from tuimon.sources.stacks.loop_reports import LoopReports
from tuimon.sources.stacks.pyspy import EndedWindow
from tuimon.sources.stacks.schedule import (
    FASTEST_HZ,
    FIRST_WINDOWS_S,
    PlannedWindow,
    ProcessKey,
    SampledProcesses,
    WindowSchedule,
)
from tuimon.sources.stacks.shorten import WindowStacks
from tuimon.sources.stacks.speedscope import SampledThread, WindowSamples
from tuimon.torch_code import is_loader_idle_loop, is_worker_loop, loads_data

#: Seconds between two reads: while a window ends, and at most (a process may appear).
_POLL_S = 0.05
_LONGEST_SLEEP_S = 0.25
#: A window ends early once it has used this many times its planned CPU: our choice, more than a loaded machine adds.
_OVERSPENT = 3.0
#: With up to this many training processes the end of every window is awaited closely; with more, only that of the first
#: process: with 64, some window ends at nearly any moment.
_FEW_TRAINERS = 4


class _Running(Struct):
    """A window that is being sampled, with its plan."""

    recording: pyspy.PySpyRecording
    window: PlannedWindow
    files: TargetFiles
    ended: pyspy.EndedWindow | None = None

    @property
    def key(self) -> ProcessKey:
        """The process."""
        return self.window.key


class StackSource(Source):
    """Samples the run's Python processes through py-spy within a CPU budget."""

    name = "stacks"

    def __init__(
        self,
        table: ProcessTable,
        rate_hz: float | None = None,
        max_cpu_ratio: float = 0.03,
        clock: Callable[[], float] = time.monotonic,
        binary: Callable[[], str | None] = pyspy.find,
    ) -> None:
        """``rate_hz``: never sample more often than this; the budget may allow less."""
        self.period_s = _POLL_S
        self.table = table
        self._clock = clock
        self._find_binary = binary
        self._binary: str | None = None
        self._limit_hz = min(rate_hz or FASTEST_HZ, FASTEST_HZ)
        self._schedule = WindowSchedule(max_cpu_ratio, self._limit_hz, clock())
        self.gil = GilSampler()
        self._agents: dict[ProcessKey, InProcessSampler] = {}  # of processes that py-spy may not read
        self._begin_s = 0.0  # when windows may begin next: all processes are considered then
        self.running: dict[int, _Running] = {}
        self.ending: dict[int, _Running] = {}  # windows whose files are being written
        self._failures = SamplingFailures(self.name)
        self._cores = pyspy.Cores()
        self._training: frozenset[int] = frozenset()
        self.sampled = SampledProcesses(table)
        self._records = WindowRecords(table)
        self._rest_until_s = -math.inf  # workers are not sampled until then, as they idle

    def read(self) -> Iterable[Record]:
        """The records of windows that have ended; begins new ones."""
        now_s = self._clock()
        if self.table.sampling_ratio is not None:
            self._schedule.budget_ratio = self.table.sampling_ratio
        out = self.ended_windows(now_s)
        gil_cpu_s, gil_records = self.gil.poll(now_s, self.table.programs)
        self.table.sampler_cpu_s += gil_cpu_s
        out.extend(gil_records)
        if now_s >= self._begin_s:
            self._begin_s = now_s + _LONGEST_SLEEP_S
            self._begin_windows(now_s)
        self._follow_threads()
        out.extend(self._in_process_windows(now_s))
        problems = {key: agent.problem for key, agent in self._agents.items() if agent.problem is not None}
        inside = {key for key, agent in self._agents.items() if agent.is_delivering}
        out.extend(self._failures.notices(now_s, inside, problems))
        self.period_s = self._sleep_s(now_s)
        return out

    def close(self) -> None:
        """End all py-spy children, and sampling by agents."""
        for agent in self._agents.values():
            agent.close()
        self.table.sampler_cpu_s += self.gil.kill()
        for running in (*self.running.values(), *self.ending.values()):
            ended = running.ended  # it may wait for its turn, after the window that ends before it
            self.table.sampler_cpu_s += ended.cpu_s if ended is not None else running.recording.kill()
        self.running.clear()
        self.ending.clear()

    # ---- windows that have ended

    def ended_windows(self, now_s: float) -> list[Record]:
        """Records of the windows that have ended, of each process in their order."""
        out: list[Record] = []
        for windows in (self.ending, self.running):
            for pid, running in list(windows.items()):
                running.ended = running.ended or running.recording.poll(now_s)
                is_next = windows is self.ending or pid not in self.ending  # the windows of a process in their order
                if running.ended is not None and is_next:
                    del windows[pid]
                    self._begin_s = now_s
                    out.extend(self.records_of(running.ended, running, now_s))
        for pid, running in list(self.running.items()):
            if running.recording.stopping and pid not in self.ending:
                self._begin_s = now_s
                self.ending[pid] = self.running.pop(pid)  # the next window may begin while it writes its file
        return out

    def records_of(self, ended: pyspy.EndedWindow, running: _Running, now_s: float) -> Iterable[Record]:
        self.table.sampler_cpu_s += ended.cpu_s
        samples = ended.samples
        if samples is None or (ended.failed and not samples.instants):
            running.window.settle(None, ended.cpu_s)
            return self._failed_window(ended, running.key, now_s)
        running.window.settle(samples.instants, ended.cpu_s)
        self._failures.clear(running.key)
        if running.key[0] in self.sampled.workers and (is_idle := is_idle_worker(samples)) is not None:
            self._rest_until_s = now_s + _RESTS_S if is_idle else now_s
        return self._records.sampled_records(ended, samples, running.key, running.files, now_s)

    def _in_process_windows(self, now_s: float) -> Iterable[Record]:
        """Windows of training processes that py-spy may not read, sampled by their agents."""
        denied = {key for key in map(self.sampled.key, self._training) if self._failures.denied(key)}
        for key in self._agents.keys() - denied:
            self._agents.pop(key).close()
        for key in denied - self._agents.keys():
            self._agents[key] = InProcessSampler(key[0], self._limit_hz)
        for key, agent in self._agents.items():
            ended = agent.poll(now_s, self._schedule.ratio(now_s) / len(self._agents))
            self.table.sampler_cpu_s += ended.cpu_s if ended is not None else 0.0
            if ended is not None and ended.samples is not None:
                files = self._files(key)
                yield from self._records.sampled_records(ended, ended.samples, key, files, now_s, in_process=True)

    def _failed_window(self, ended: pyspy.EndedWindow, key: ProcessKey, now_s: float) -> Iterable[Record]:
        if not is_alive(*key):
            self._failures.clear(key)
            return
        if not ended.interrupted:  # a py-spy that our SIGINT came too early for needs a longer window, not a short one
            self._schedule.restart_short_windows(key)
        problem = failures.explain(ended.message, ended.pid)
        self._failures.add_failure(key, problem, now_s)
        if key in self._agents and self._agents[key].is_delivering:  # no samples are lost: py-spy is only tried again
            return
        yield stacks_record(ended, now_s, 0, stacks=[], lost=True)

    # ---- windows to begin

    def _begin_windows(self, now_s: float) -> None:
        if self.sampled.are_due(now_s):
            self._restart_new_trainers(now_s)
            self.sampled.find(now_s)
            wanted = set(self.sampled.keys.values())
            for holder in (self._schedule, self._failures, self._records):
                holder.forget_others(wanted)
        trainers, key = self.sampled.trainers, self.sampled.key
        is_resting = now_s < self._rest_until_s and len(trainers) == 1  # the workers of several may differ
        workers = () if is_resting else self.sampled.workers
        binary = self._usable_binary(now_s) if self.sampled.keys else None
        if binary is None:
            return
        try:
            for window in self._schedule.due_windows(
                trainers, workers, key, self.running.keys(), now_s, lambda key: self._failures.waits(key, now_s)
            ):
                self._begin_window(binary, window)
            if self.running:
                readable = [pid for pid in trainers if key(pid) not in self._failures]
                self.gil.begin_window(binary, readable, self._schedule.gil_ratio, now_s)
        except OSError as error:
            problem = Problem(f"no stack samples: py-spy does not start: {error.strerror}")
            self._failures.add_failure(NO_PROCESS, problem, now_s)
            self._binary = None

    def _begin_window(self, binary: str, window: PlannedWindow) -> None:
        pid, plan, most_cpu_s = window.key[0], window.plan, _OVERSPENT * window.cpu_s
        try:
            recording = pyspy.PySpyRecording.start(binary, pid, plan.rate_hz, plan.window_s, most_cpu_s=most_cpu_s)
        except OSError:
            window.settle(None, 0.0)
            raise
        if self._schedule.are_cores_crowded:
            recording.follow_thread()
        self.running[pid] = _Running(recording, window, self._files(window.key))

    def _follow_threads(self) -> None:
        """While no core is free, keep the first rank's py-spy on the core of the thread that it samples."""
        self._cores.sample()
        self._schedule.are_cores_crowded = self._cores.are_crowded
        if not self._cores.are_crowded:
            return
        first = self.running.get(self.sampled.trainers[0]) if self.sampled.trainers else None
        if first is not None:
            first.recording.follow_thread()
        self.gil.follow_thread()

    def _restart_new_trainers(self, now_s: float) -> None:
        """End the open window of a process that begins to train: it has sampled imports and set-up."""
        training = self.table.trainers()
        for pid in training - self._training:
            self._schedule.begin_training(self.sampled.key(pid), now_s)
            self.gil.begin_training(now_s)
            if pid in self.running:
                # a py-spy that has only just started would die of the SIGINT, without its file
                recording = self.running[pid].recording
                recording.due_s = max(now_s, recording.started_s + FIRST_WINDOWS_S[0])
        self._training = training

    def _usable_binary(self, now_s: float) -> str | None:
        if self._binary is None and not self._failures.waits(NO_PROCESS, now_s):
            self._binary = self._find_binary()
            if self._binary is None:
                self._failures.add_failure(NO_PROCESS, failures.no_binary(), now_s)
            else:
                self._failures.clear(NO_PROCESS)
        return self._binary

    def _files(self, key: ProcessKey) -> TargetFiles:
        return TargetFiles(key[0], None if key[1] is None else start_unix_s(key[1]))

    def _sleep_s(self, now_s: float) -> float:
        """Time until the next window is due, at most a quarter second: a process may appear."""
        due = [running.recording.due_s - now_s for pid, running in self.running.items() if self._is_close(pid)]
        next_s = min(due, default=_LONGEST_SLEEP_S)
        ends = next_s <= 0 or any(map(self._is_close, self.ending))
        return _POLL_S if ends else min(max(next_s, 0.01), _LONGEST_SLEEP_S)

    def _is_close(self, pid: int) -> bool:
        """True if the end of this process's window is awaited closely."""
        trainers = self.sampled.trainers
        return len(trainers) <= _FEW_TRAINERS or pid == trainers[0]


#: A worker idles if it waits for work in this share (0..1) of its samples, if there are at least this many: our choice.
#: If it works half of the time, 7 or 8 of 8 samples are idle in 4 of 100 cases.
_IDLE_SHARE, _MIN_SAMPLES = 0.8, 8
#: Seconds for which idle workers are not sampled: our choice, some windows of the trainer. The trainer gets their CPU
#: meanwhile, since its samples show more.
_RESTS_S = 5.0


def is_idle_worker(samples: WindowSamples) -> bool | None:
    """True if a worker idles in a window; None if the window has too few samples."""
    main = samples.threads[0].stacks if samples.threads else Counter[tuple[RawFrame, ...]]()
    if main.total() < _MIN_SAMPLES:
        return None
    idle = 0  # samples in which its loop makes no batch but waits for the indices of one
    for stack, count in main.items():
        own = next((frame for frame in reversed(stack) if loads_data(frame.file, frame.function)), None)
        if own is not None and is_loader_idle_loop(own.file, own.function):
            idle += count
    return idle >= _IDLE_SHARE * main.total()


class WindowRecords:
    """Makes the records of all windows of a run; each frame is recorded once."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._ids = FrameIds()
        self._loops = LoopReports(table, self._ids)
        self._parked: dict[ProcessKey, set[int]] = {}  # threads that a record has named as parked

    def sampled_records(
        self,
        ended: EndedWindow,
        samples: WindowSamples,
        key: ProcessKey,
        files: TargetFiles,
        now_s: float,
        in_process: bool = False,
    ) -> Iterable[Record]:
        """The samples, after the frames that are new in them; ``in_process``: by the process's own agent."""
        main = next((thread.stacks for thread in samples.threads if thread.tid == ended.pid), Counter())
        code = ProcessCode(files, self._ids.facts)
        window = WindowStacks(self._ids, code, self._loops.path_of(key, main, code))
        if self._loops.has_loop(key):
            self._table.note_seen(ended.pid, "training")
        elif any(is_worker_loop(frame.file, frame.function) for stack in main for frame in stack):
            self._table.note_seen(ended.pid, "loading")
        for thread in samples.threads:
            window.add_thread(thread.tid, thread.name[:80], thread.stacks, matters=thread.matters)
        loop = self._loops.due(key, code)
        first, new = self._ids.pop_new_frames()
        if new:
            yield Frames(t=round(now_s, 3), pid=0, first=first, frames=new)
        yield stacks_record(
            ended,
            now_s,
            samples.instants,
            stacks=window.stacks,
            folded=window.folded,
            parked=self.newly_parked(key, window.parked, {thread.tid for thread in samples.threads}),
            cycles=samples.cycles,
            in_process=in_process,
            loop=loop,
        )

    def newly_parked(self, key: ProcessKey, parked: list[tuple[int, str]], live: set[int]) -> list[tuple[int, str]]:
        """Parked threads that no earlier record of this process names, a few at a time; ``live``: all its threads."""
        named = self._parked.setdefault(key, set())
        named &= live
        new = [(tid, name) for tid, name in parked if tid not in named][:64]
        named.update(tid for tid, _ in new)
        return new

    def forget_others(self, wanted: Collection[ProcessKey]) -> None:
        """Drop the data on processes that are no longer sampled."""
        self._parked = {key: threads for key, threads in self._parked.items() if key in wanted}
        self._loops.forget_others(wanted)


def stacks_record(ended: EndedWindow, now_s: float, instants: int, **more: Any) -> Stacks:  # noqa: ANN401  (fields of the record)
    """The record of a window; if py-spy failed, a record without samples."""
    return Stacks(
        t=round(min(now_s, ended.until_s), 3),
        pid=ended.pid,
        window_s=round(ended.window_s, 3),
        rate_hz=round(instants / ended.window_s, 1) if ended.window_s > 0 else 0.0,
        samples=instants,
        failed=ended.failed,
        cost_cpu_s=round(ended.cpu_s, 4),
        **more,
    )


#: The rate of a window, which then has 30 samples.
_GIL_RATE_HZ = 50
#: The first windows of a training: how many, the pause before each, as stacks come first, and how many times their
#: share of the budget they may spend, as a verdict on its first seconds rests on them. Later ones are less frequent.
_GIL_FIRST_WINDOWS = 4
_GIL_FIRST_PAUSE_S = 2.0
_GIL_FIRST_SHARES = 10.0
_GIL_SHORTEST_PAUSE_S = 5.0


class GilSampler:
    """Samples which thread holds the GIL: one window at a time, the training processes in rotation."""

    def __init__(self) -> None:
        self.running: pyspy.PySpyRecording | None = None
        self._due_s: float | None = None
        self._begun = 0  # windows, since the latest training began
        self._cost_s = 0.025  # a start of py-spy and 30 samples, on a 2-core machine
        self._last_pid = -1

    def poll(self, now_s: float, programs: Collection[str] = ()) -> tuple[float, Iterable[Gil]]:
        """CPU seconds of a window that has ended, and its record; nothing while it runs, no record if it failed.

        ``programs``: installed packages whose functions count as the user's.
        """
        ended = self.running.poll(now_s) if self.running else None
        if ended is None:
            return 0.0, ()
        self.running = None
        self._cost_s += 0.3 * (ended.cpu_s - self._cost_s)  # a running mean
        if ended.samples is None or ended.window_s <= 0:
            return ended.cpu_s, ()
        counts = [GilCount(thread.tid, thread.stacks.total()) for thread in ended.samples.threads]
        counts.sort(key=lambda thread: -thread.count)
        samples = max(round(_GIL_RATE_HZ * ended.window_s), counts[0].count if counts else 0)
        threads = [thread for thread in counts if thread.count][:16]
        functions = _functions(ended.samples.threads, ProcessCode(TargetFiles(ended.pid), programs=programs))
        record = Gil(t=round(now_s, 3), pid=ended.pid, samples=samples, threads=threads, functions=functions)
        return ended.cpu_s, (record,)

    def begin_training(self, now_s: float) -> None:
        """Drop the open window, as a process begins to train: until now it has imported and set up."""
        self._begun = 0
        if self._due_s is not None:
            self._due_s = min(self._due_s, now_s + _GIL_FIRST_PAUSE_S)

    def begin_window(self, binary: str, trainers: Sequence[int], share_ratio: float, now_s: float) -> None:
        """Begin a window if one is due; ``share_ratio`` of a core may be spent. Raises OSError without py-spy."""
        if self._due_s is None:
            self._due_s = now_s + _GIL_FIRST_PAUSE_S
        if self.running or not trainers or now_s < self._due_s:
            return
        self._begun += 1
        affordable_s, shortest_s = self._cost_s / max(share_ratio, 1e-6), _GIL_SHORTEST_PAUSE_S
        if self._begun < _GIL_FIRST_WINDOWS:
            affordable_s, shortest_s = affordable_s / _GIL_FIRST_SHARES, _GIL_FIRST_PAUSE_S
        self._due_s = now_s + max(shortest_s, affordable_s)
        self._last_pid = next((pid for pid in trainers if pid > self._last_pid), trainers[0])
        self.running = pyspy.PySpyRecording.start(binary, self._last_pid, _GIL_RATE_HZ, GIL_WINDOW_S, gil=True)

    def follow_thread(self) -> None:
        """Put the open window's py-spy on the core that the process's main thread is on now."""
        if self.running:
            self.running.follow_thread()

    def kill(self) -> float:
        """End the window, if there is one; the CPU seconds that it cost."""
        running, self.running = self.running, None
        return running.kill() if running else 0.0


def _functions(threads: Iterable[SampledThread], code: ProcessCode) -> list[GilFunction]:
    """The user's functions in or below which threads held the GIL, most samples first."""
    counts: Counter[tuple[int, str, str]] = Counter()
    for thread in threads:
        for stack, count in thread.stacks.items():
            frame = code.innermost(stack)
            if frame is not None:
                at = code.named(frame)
                counts[thread.tid, at.file, at.function] += count
    return [GilFunction(*key, count) for key, count in counts.most_common(8)]
