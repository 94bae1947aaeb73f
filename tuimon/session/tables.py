"""Folds records into tables, one for each kind of fact."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tuimon import records
from tuimon.bounds import HELD, has_room
from tuimon.node_ids import node_of
from tuimon.session.gpu_time import GpuTimeStats
from tuimon.session.loaders import Loaders
from tuimon.session.machines import MachineTables
from tuimon.session.processes import KNOWN_LIMIT, RunProcesses, ranks_of
from tuimon.session.sampling import GilWindows, Sampler
from tuimon.session.series import FEW_ROWS, Series, Stretch
from tuimon.session.stacks.process import ProcessStacks
from tuimon.session.stacks.set_up import CompilerStats
from tuimon.session.stacks.trie import Trie
from tuimon.session.standstills import Standstills
from tuimon.session.steps import StepStats
from tuimon.session.threads import ProcessThreads, core_seconds

A = TypeVar("A", bound="Answering")
P = ParamSpec("P")
T = TypeVar("T")


class ByProcess(dict[int, T]):
    """The data of each process; for a process without records an empty object, which is not kept."""

    def __init__(self, make: Callable[[int], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, pid: int) -> T:
        return self._make(pid)

    def kept(self, pid: int) -> T:
        """The data of a process, kept from now on."""
        return self.setdefault(pid, self[pid])


class Answering(Protocol):
    """A session, a view of it, or a process in one, with the answers that hold until it changes."""

    @property
    def answers(self) -> dict[object, Any]: ...  # Any: by query, each of its own type


def cached_query(query: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[A, P], T]:
    """A query whose answer is kept, for all callers, until the session changes."""

    @wraps(query)
    def answered(subject: A, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answers, key = subject.answers, (query, subject, *args, *kwargs.items())
        if key not in answers:
            answers[key] = query(subject, *args, **kwargs)
        return answers[key]  # type: ignore[no-any-return]  # of whatever query

    return answered


class Tables:
    """Folds records, each into its table, and knows who trains; ``Session`` queries them."""

    def __init__(self) -> None:
        self.header: records.Header | None = None
        self.exit: records.Exit | None = None
        self.cost: records.Cost | None = None
        self.printed = records.Printed(t=0.0, pid=0)
        self.uncaught: dict[int, records.Uncaught] = {}  # the exceptions that ended processes, by process
        self.now_s: float = 0.0  # ``t`` of the latest record
        self.start_s: float = 0.0  # ``t`` of the first; like ``now_s`` 0 before any
        self._begun = False
        self.notices: dict[str, records.Notice] = {}  # the latest of each source, unless it was "ok"
        self.trie = Trie()
        self.threads = ByProcess(ProcessThreads)
        self._has_own_bytes = False  # True if the log has each process's memory without shared pages
        self.nodes = MachineTables(self._own_core_s)
        self.memory_history: dict[int, records.MemoryHistory] = {}  # the latest of each process
        self.collective_counts: dict[int, records.CollectiveCounts] = {}  # the latest of each process
        self.step_calls: dict[int, records.StepCalls] = {}  # as well
        self.traces: deque[records.TraceTaken] = deque(maxlen=HELD)
        self.standstills = Standstills()
        self.chosen = 0  # the process in focus, by the user; 0: the first one
        self.step_stats = ByProcess(lambda _: StepStats())
        self.stacks = ByProcess(partial(ProcessStacks, trie=self.trie))
        self.samplers = ByProcess(lambda _: Sampler())
        self.sampling_cost_s = 0.0  # CPU of all windows of samples, of whatever process
        self.sampled_since_s: float | None = None
        self.gil = ByProcess(GilWindows)
        self.native = ByProcess(lambda _: Series(Stretch, FEW_ROWS))
        self.run_processes = RunProcesses()
        self.loaders = ByProcess(lambda _: Loaders())
        self.gpu_times = ByProcess(lambda _: GpuTimeStats())
        self.compilers = ByProcess(lambda _: CompilerStats())
        self.answers: dict[object, Any] = {}  # until a process comes, changes or ends, or begins to train
        self._pids: set[int] = set()  # the processes with any record, but for those that were forgotten
        self._folds: dict[type[records.Record], Callable[..., None]] = {
            records.Header: self._fold_header,
            records.Process: self._fold_process,
            records.Steps: self._fold_steps,
            records.Threads: self._fold_threads,
            records.Stacks: self._fold_stacks,
            records.Frames: lambda record: self.trie.add_frames(record.first, record.frames),
            records.Gil: self._fold_gil,
            records.Native: lambda record: self.native.kept(record.pid).fold(
                record, {(each.tid, each.library, each.phase): each.samples for each in record.code}
            ),
            records.Loader: self._fold_loader,
            records.Gpu: lambda record: self.nodes.of_process(record.pid).add_gpu(record),
            records.GpuTime: self._fold_gpu_time,
            records.TorchMemory: self._fold_gpu_time,
            records.Compiler: lambda record: self.compilers.kept(record.pid).add_record(record),
            records.MemoryHistory: lambda record: self.memory_history.update({record.pid: record}),
            records.CollectiveCounts: lambda record: self.collective_counts.update({record.pid: record}),
            records.StepCalls: lambda record: self.step_calls.update({record.pid: record}),
            records.TraceTaken: self.traces.append,
            records.MachineMemory: lambda record: self.nodes.of_process(record.pid).add_memory(record),
            records.Node: self.nodes.add_node,
            records.Standstill: lambda record: self.standstills.add_standstill(
                record, max((stats.total for stats in self.step_stats.values()), default=None)
            ),
            records.Collectives: self.standstills.add_collectives,
            records.Notice: self._fold_notice,
            records.Cost: partial(setattr, self, "cost"),
            records.Printed: partial(setattr, self, "printed"),
            records.Uncaught: lambda record: self.uncaught.update({record.pid: record}),
            records.Exit: partial(setattr, self, "exit"),
        }

    def add(self, record: records.Record) -> None:
        t = record.t
        self.now_s = max(self.now_s, t)
        if not self._begun:
            self.start_s, self._begun = t, True
        fold = self._folds.get(type(record))
        if fold is None:  # marks are only exported
            return
        if record.pid not in self._pids:
            if len(self._pids) < KNOWN_LIMIT * max(1, len(self.nodes.known)):
                self._pids.add(record.pid)
            elif not isinstance(record, records.Header | records.Process | records.Exit):
                return
        fold(record)

    # -- the processes that train, and the one in focus

    @cached_query
    def trainers(self) -> list[int]:
        """Processes whose markers show backwards or updates, by rank.

        Without any, those whose markers show steps, then those whose samples do, then the process attached to.
        """
        with_steps = [pid for pid, stats in self.step_stats.items() if stats.total]
        return self.run_processes.trainers(self._trained_pids() or with_steps or self._sampled_in_steps())

    @cached_query
    def trainer(self) -> int:
        """The process in focus: the one chosen, else the first live trainer, or the run's root while none is known.

        0 if that is unknown too; it stands for the machine, which has no steps, samples or threads.
        """
        trainers, has_ended = self.trainers(), self.run_processes.has_ended
        if self.chosen in trainers and not has_ended(self.chosen):
            return self.chosen
        live = next((pid for pid in trainers if not has_ended(pid)), 0)
        if live or self.chosen in trainers:
            return live or self.chosen
        if not trainers:
            return self.header.pid if self.header is not None else 0
        return self.group_of(trainers[0])[0]  # the first of them; of a rank that was restarted the last

    @cached_query
    def group_of(self, pid: int) -> list[int]:
        """The processes of a training, by rank; without ranks, the process alone."""
        ranks = ranks_of(pid, self.run_processes.known, set(self.trainers()))
        return [process.pid for process in ranks] or [pid]

    # -- folding

    def _fold_header(self, record: records.Header) -> None:
        self.header = record
        self.answers.clear()
        self.nodes.add_cores(node_of(record.pid), record.cpu_count)

    def _fold_notice(self, record: records.Notice) -> None:
        if record.level == "ok":
            self.notices.pop(record.source, None)
        elif has_room(self.notices, record.source):
            self.notices[record.source] = record

    def _fold_process(self, record: records.Process) -> None:
        before = self.run_processes.known.get(record.pid)
        if before is not None and abs(before.start_unix_s - record.start_unix_s) > 1.0:  # the pid was reused
            self._forget(record.pid)
        if record.ended:
            self.nodes.of_process(record.pid).forget(record.pid)
        self.answers.clear()
        for pid in self.run_processes.add_process(record, self._trained_pids, max(1, len(self.nodes.known))):
            self._forget(pid)

    def _own_core_s(self, node: int, begin_s: float, end_s: float) -> tuple[float, float]:
        return core_seconds([own for pid, own in self.threads.items() if node_of(pid) == node], begin_s, end_s)

    def _trained_pids(self) -> set[int]:
        return {pid for pid, stats in self.step_stats.items() if stats.trains}

    def _sampled_in_steps(self) -> list[int]:
        """Processes without markers whose samples show that they train; without any, those that run a model."""
        known = self.run_processes.known.values()
        own = {process.pid for process in known if process.role == "trainer" and not process.markers}
        shown = [pid for pid, stacks in self.stacks.items() if pid in own and stacks.has_whole_step]
        return [pid for pid in shown if not self.stacks[pid].forward_only] or shown

    def _forget(self, pid: int) -> None:
        self.answers.clear()
        self._pids.discard(pid)
        for held in (
            *(self.step_stats, self.stacks, self.threads, self.gpu_times, self.compilers, self.memory_history),
            *(self.uncaught, self.samplers, self.gil, self.native, self.loaders),
        ):
            held.pop(pid, None)
        self.nodes.of_process(pid).forget(pid)
        self.run_processes.forget(pid)

    def _fold_steps(self, record: records.Steps) -> None:
        self.standstills.note_steps(record)
        if self.step_stats[record.pid].begins_anew(record):
            del self.step_stats[record.pid]
        stats, stacks = self.step_stats.kept(record.pid), self.stacks.kept(record.pid)
        begun, before = stats.begin_s is not None, (stats.trains, stats.has_loop)
        processes = 1 if record.pid == self.trainer() else len(self.step_stats)
        workers = (self.threads[worker.pid].latest for worker in self.run_processes.workers(record.pid))
        on_cores = self.threads[record.pid].on_cores(record.t - record.window_s, record.t, workers)
        stats.add_window(record, on_cores, processes)
        if (stats.trains, stats.has_loop) != before:
            self.answers.clear()
        stacks.add_steps(record, has_loop=stats.has_loop)
        if not begun and stats.begin_s is not None:
            stacks.leave_out_before(stats.begin_s)
            self._begin_steps(record.pid, stats.begin_s)

    def launcher_of(self, process: records.Process) -> int:
        """The process of the run that started this one and waits for it; 0: none, or both are ranks."""
        parent = self.run_processes.known.get(process.ppid)
        are_ranks = parent is not None and parent.rank is not None and process.rank is not None
        return 0 if parent is None or are_ranks else parent.pid

    def _begin_steps(self, pid: int, t: float) -> None:
        process = self.run_processes.known.get(pid)
        if process is not None and self.header is not None:
            self.stacks[self.launcher_of(process)].spent.begin(self.header.moment_s(process.start_unix_s))
        for threads in self.threads.values():
            threads.keep_apart(t)
        self.nodes.of_process(pid).begin_steps(t)

    def _fold_threads(self, record: records.Threads) -> None:
        self._has_own_bytes = self._has_own_bytes or record.own_bytes is not None
        held_bytes = record.own_bytes if self._has_own_bytes else record.rss_bytes
        stacks, stats = self.stacks.get(record.pid), self.step_stats.get(record.pid)  # workers have neither
        tid, steps = stacks.tid if stacks is not None else record.pid, stats.total if stats is not None else 0
        self.threads.kept(record.pid).add_window(record, tid, held_bytes, steps)
        self.nodes.of_process(record.pid).add_held(record.pid, held_bytes or 0)

    def _fold_gil(self, record: records.Gil) -> None:
        if not self.threads[record.pid].is_stopped:  # whoever held the GIL then holds it until the process goes on
            self.gil.kept(record.pid).add_record(record)

    def _fold_stacks(self, record: records.Stacks) -> None:
        self.samplers.kept(record.pid).add_window(record)
        self.sampling_cost_s += record.cost_cpu_s
        if self.sampled_since_s is None:
            self.sampled_since_s = record.t - record.window_s
        samples, process = self.stacks.kept(record.pid), self.run_processes.known.get(record.pid)
        if process is not None and process.markers:
            samples.learn("markers")
        shown = samples.has_whole_step, samples.forward_only
        others = 0 if record.pid == self.trainer() else len(self.step_stats)
        samples.add_window(record, max(1, others // 16))  # of many ranks, a few at a time are placed in phases
        if shown != (samples.has_whole_step, samples.forward_only):
            self.answers.clear()
        if process is not None and process.role == "trainer" and (launcher := self.launcher_of(process)):
            self.stacks.kept(launcher).spent.add_awaited(record)
        if process is not None and not process.markers and samples.has_whole_step:
            self._begin_steps(record.pid, samples.begin_s)

    def _fold_loader(self, record: records.Loader) -> None:
        self.loaders.kept(record.pid).add_record(record)
        if (record.fetches or record.counted) and record.role == "train":
            self.stacks.kept(record.pid).learn("loader")

    def _fold_gpu_time(self, record: records.GpuTime | records.TorchMemory) -> None:
        self.gpu_times.kept(record.pid).add_record(record, self.step_stats[record.pid].first_step_s)
