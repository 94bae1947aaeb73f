"""The state of one run, and a view of it over one span, which panes, rules, reports and metrics read."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property, partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from msgspec import structs

from tuimon.native_code import NativeUse
from tuimon.node_ids import node_of
from tuimon.records import NO_TORCH_YET, CompilerEvents, CompilerWork, Gpu, Process, Record, Threads, bare_uuid
from tuimon.session.gpu_time import GpuTimeRow, TorchMemoryRow
from tuimon.session.gpus import GpuRow, gpu_rows
from tuimon.session.loaders import LoaderRow, worker_name
from tuimon.session.machines import CoresTaken
from tuimon.session.phase_table import PhaseTable, SplitShares, inferred_phases, phase_table
from tuimon.session.sampling import SPAN_S, Sampling, sampling
from tuimon.session.series import EVER, LATEST, NEVER, WINDOW_S, Span
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.set_up import Checkpoints
from tuimon.session.steps import SharedStep, SteppingSpan, StepSummary, Totals
from tuimon.session.tables import Tables
from tuimon.session.threads import MainThread, ThreadRow, thread_rows

#: ``recent``: the last 30 s, or the last few steps where these take longer. ``whole``: the steady part of the run, from
#: its first step, or the end of its warm-up, to its last step.
SpanName = Literal["recent", "whole"]

#: Seconds that the first markers may come later than two intervals: our choice, a busy machine's delay.
_MARKERS_WAIT_S = 2.0

P = ParamSpec("P")
T = TypeVar("T")


class Session(Tables):
    """One run as its records show it.

    ``add`` every record in order; query ``over`` a span at any time. Single-threaded, no clock, no I/O: live, replay
    and tests are the same fold. The session itself has what belongs to no span, such as the
    latest of each fact.
    """

    def __init__(self) -> None:
        super().__init__()
        self._views: dict[SpanName, SessionView] = {}  # since the latest record

    def add(self, record: Record) -> None:
        if self._views:
            self._close_views()
        super().add(record)

    def over(self, span: SpanName) -> SessionView:
        """The session as it is now, over a span of the run; the same view until the next record."""
        view = self._views.get(span)
        if view is None:
            view = self._views[span] = SessionView(self, span)
        return view

    def shown(self) -> SessionView:
        """The view that people see: of the last 30 s; once the run has ended, of all of it, as the verdict then is."""
        return self.over("recent" if self.exit is None else "whole")

    def _close_views(self) -> None:
        for view in self._views.values():
            view.close()
        self._views.clear()

    def focus_on(self, pid: int) -> None:
        """Choose the training process that is in focus while it lasts; 0: the first one again."""
        self.chosen = pid
        self._close_views()

    @property
    def interval_s(self) -> float:
        """The length of a window."""
        return self.header.interval_s if self.header is not None else 1.0

    def process(self, pid: int) -> Process | None:
        """The latest record of a process."""
        return self.run_processes.known.get(pid)

    def processes(self) -> list[Process]:
        """All processes of the run, trainers first, ended ones last."""
        known, trainers = self.run_processes.known, self.trainers()
        others = sorted(known.values(), key=lambda process: (process.ended, process.start_unix_s))
        return list({pid: known[pid] for pid in (*trainers, *(other.pid for other in others)) if pid in known}.values())

    def training_tid(self, pid: int) -> int:
        """The thread of a process that trains: the main one, unless markers or samples show another."""
        stats = self.step_stats[pid]
        return (stats.latest.tid or pid) if stats.latest is not None and stats.has_loop else self.stacks[pid].tid

    def steady_span(self, pid: int) -> Span:
        """The steady part of a process's steps; without steps of its own, that of the process in focus.

        Without markers it begins where samples show the first step.
        """
        focus = self.trainer() or pid
        own = pid if pid in self.step_stats else focus
        if own in self.step_stats:
            return self.step_stats[own].steady_span()
        process, sampled = self.process(focus), self.stacks[focus]
        is_shown = sampled.has_whole_step and process is not None and not process.markers
        return Span(sampled.begin_s) if is_shown else Span()

    def worker_name(self, pid: int) -> str:
        return worker_name(pid, self.run_processes, self.loaders)

    def torch_memory(self, pid: int) -> list[TorchMemoryRow]:
        """The memory that torch's allocator holds in a process, by device."""
        process, named = self.process(pid), {bare_uuid(gpu.uuid): gpu.uuid for gpu in self.gpus_of(pid)}
        uuids = process.gpu_uuids if process is not None else ()
        return self.gpu_times[pid].memory([named.get(bare_uuid(uuid), uuid) for uuid in uuids])

    def gpus_of(self, pid: int) -> list[Gpu]:
        """The latest record of each GPU that a process reports to use."""
        process, devices = self.process(pid), self.nodes.of_process(pid).devices.values()
        return [device.latest for device in devices if process is not None and process.uses(device.latest)]

    def checkpoints(self, pid: int) -> Checkpoints | None:
        """What a process has saved since its first steps; None unless it was seen to write, and to save checkpoints.

        Fewer samples of saving than bursts of writing leave open which of these are checkpoints.
        """
        threads, spent = self.threads[pid], self.stacks[pid].spent
        bursts, burst_bytes = threads.written()
        if not burst_bytes or spent.saves < (bursts or 1):
            return None
        seconds = spent.in_loop["checkpoint"] + spent.since_step["checkpoint"]
        return Checkpoints(bursts, burst_bytes, seconds, threads.written_to) if seconds else None

    # -- the machine; of a run on several nodes, that of the process in focus

    @property
    def focus_node(self) -> int:
        """The number (``node_ids``) of the node that the process in focus runs on."""
        return node_of(self.trainer())

    def trainers_here(self) -> list[int]:
        node = self.focus_node
        return [pid for pid in self.trainers() if node_of(pid) == node]

    def host_of(self, pid: int) -> str | None:
        """The node that a process runs on, by its host name."""
        node = self.nodes.known.get(node_of(pid))
        return node.host if node is not None else self.header.host if self.header is not None else None

    def pids_on(self, node: int) -> list[int]:
        """The processes of a node, in the order in which they came."""
        pids = self.held.pids
        if pids is None:
            pids = self.held.pids = {}
            for pid in self.run_processes.known:
                pids.setdefault(node_of(pid), []).append(pid)
        return pids.get(node, [])


def once(query: Callable[Concatenate[SessionView, P], T]) -> Callable[Concatenate[SessionView, P], T]:
    """A query of a view that is answered once: rules and panes share the answer."""

    @wraps(query)
    def answered(view: SessionView, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = query, *args, *kwargs.items()
        if key not in view.answers:
            view.answers[key] = query(view, *args, **kwargs)
        return view.answers[key]  # type: ignore[no-any-return]  # of whatever query

    return answered


class SessionView:
    """A Session at one moment, over one span: steps, samples and counters are all of that span.

    Immutable: queries are answered when they are first asked, and once the session has merged another record they raise
    RuntimeError. Over the whole run, how it winds down is left out: its last workers count as they were.
    """

    def __init__(self, session: Session, span: SpanName) -> None:
        self.is_whole = span == "whole"
        self.now_s = session.now_s
        self.answers: dict[object, Any] = {}  # Any: by query, each of its own type
        self._session: Session | None = session

    @property
    def session(self) -> Session:
        """The Session, unchanged since this moment."""
        if self._session is None:
            raise RuntimeError("this view is out of date: the session has merged records since")
        return self._session

    def close(self) -> None:
        """Let go of all: the session moves on."""
        self._session = None
        self.answers.clear()

    def span_of(self, pid: int | None, last_s: float = WINDOW_S) -> Span:
        """The span that a process's figures cover (None: the one in focus): its steady part, or the last seconds."""
        if not self.is_whole:
            return Span(last_s=last_s)
        pid = self.session.trainer() if pid is None else pid
        return self.session.steady_span(pid)

    # -- processes

    def process(self, pid: int) -> Process | None:
        """The latest record of a process; over the whole run it counts as alive if it lived in that span."""
        known = self.session.process(pid)
        return self._as_it_was(known) if known is not None else None

    def processes(self) -> list[Process]:
        """All processes of the run, trainers first, ended ones last."""
        return [self._as_it_was(process) for process in self.session.processes()]

    def _as_it_was(self, process: Process) -> Process:
        return structs.replace(process, ended=False) if process.ended and process.t >= self._lived_s else process

    @cached_property
    def _lived_s(self) -> float:
        """Processes that ended after this moment count as alive: over the whole run those that lived in it."""
        span = self.span_of(None)
        return span.begin_s if span.last_s == math.inf else math.inf

    def workers(self, pid: int) -> list[Process]:
        """Live DataLoader workers of a process; over the whole run, when all have ended, those that were the last."""
        last = self.session.run_processes.last_workers(pid)
        return self.session.run_processes.workers(pid) or [worker for worker in last if worker.t >= self._lived_s]

    def recent_workers(self, pid: int) -> list[Process]:
        """DataLoader workers of a process that lived in the span: some loaders start new ones for every epoch."""
        span = self.span_of(None)
        return self.session.run_processes.workers_since(pid, max(span.begin_s, self.now_s - span.last_s))

    # -- steps and phases

    @once
    def phases(self, pid: int) -> PhaseTable:
        """Phase breakdown of a process; empty before the first step.

        Without markers the shares are inferred from its main thread's stack samples.
        """
        if pid not in self.session.step_stats:
            return self._inferred(pid)
        return phase_table(pid, self.step_totals(pid), self._split(pid))

    @once
    def step_totals(self, pid: int) -> Totals:
        """Sums over the steps; without markers empty."""
        return self.session.step_stats[pid].over(self.span_of(pid))

    def steps(self, pid: int) -> StepSummary | None:
        """Step count, rate and times of a process.

        Without markers: None, or only a rate of late, estimated from the order of its stack samples (``estimated``).
        """
        if pid in self.session.step_stats:
            return self.session.step_stats[pid].summary(self.step_totals(pid))
        since_s = max(self.now_s - SPAN_S, self.session.stacks[pid].begin_s)
        per_second = self.session.samplers[pid].steps_per_second(since_s)
        if per_second is None or self._has_markers(pid):
            return None
        return StepSummary(0, None, None, per_second, 0)

    def between_parts(self, pid: int) -> tuple[float, ...]:
        """How the time that markers cannot split is divided into the parts of ``STEP``."""
        return self._split(pid).parts

    @once
    def _split(self, pid: int) -> SplitShares:
        return self.samples(pid).split.with_optimizer(self.step_totals(pid).sums.phases_ns)

    @once
    def stepping_spans(self) -> list[SteppingSpan]:
        """When the process in focus made the steps that its phases cover; empty before the first or unmarked."""
        focus = self.session.trainer()
        return self.session.step_stats[focus].spans(self.span_of(focus))

    def _has_markers(self, pid: int) -> bool:
        process = self.session.process(pid)
        return process is not None and process.markers

    def _inferred(self, pid: int) -> PhaseTable:
        """Phases from stack samples, if there are no markers to wait for: the first ones take up to two intervals."""
        sampled = self.session.stacks[pid]
        if self._has_markers(pid) or not sampled.has_whole_step:
            return PhaseTable(pid)
        process = self.session.process(pid)
        wait_s = 2 * self.session.interval_s + _MARKERS_WAIT_S
        may_come = process is not None and process.markers_reason == NO_TORCH_YET
        if may_come and self.now_s - sampled.begin_s < wait_s:
            return PhaseTable(pid)
        found, forward_only = self.samples(pid), sampled.forward_only
        counts, unsure = found.marked_counts(), found.unsure
        return inferred_phases(pid, counts, found.covered_s, unsure, forward_only=forward_only)

    # -- stack samples

    def samples(self, pid: int, tid: int | None = None, *, now: bool = False) -> Samples:
        """The stack samples of a process's training thread, or of another of its threads.

        ``now``: with those that follow its steps where these have not ended for long, as views of this moment do.
        """
        return self.session.stacks[pid].over(self.span_of(pid), tid, now=now)

    def sampled_tids(self, pid: int, *, now: bool = False) -> list[int]:
        """The threads of a process with samples, the one that trains first."""
        return self.session.stacks[pid].tids(self.span_of(pid), now=now)

    def sampling(self) -> Sampling | None:
        """How well the training processes are sampled, and at what cost, on one node; None before the first window."""
        session, focus = self.session, self.session.trainer()
        trainers = session.trainers() or [focus]
        samplers = [session.samplers[pid] for pid in sorted(trainers, key=lambda pid: pid != focus)]
        if not self.is_whole:
            cpu_ratio = session.cost.sampler_cpu_ratio if session.cost is not None else None
            return sampling(samplers, Span(self.now_s - SPAN_S, self.now_s), cpu_ratio)
        whole_s = self.now_s - (self.now_s if session.sampled_since_s is None else session.sampled_since_s)
        nodes = max(1, len(session.nodes.known))
        return sampling(samplers, EVER, session.sampling_cost_s / whole_s / nodes if whole_s > 0 else None)

    # -- ranks

    def shared_steps(self, pid: int) -> Sequence[SharedStep]:
        """Single steps of a rank, to be held against the same steps of the others; of a whole run evenly spread."""
        return self.session.step_stats[pid].shared.over(self.span_of(None))

    # -- threads and cores

    def threads(self) -> list[ThreadRow]:
        """All threads on the node in focus: trainers' first, their workers next, then the rest."""
        session, known = self.session, self.session.run_processes
        order: list[int] = []
        for pid in session.trainers_here():
            order += [pid, *(worker.pid for worker in known.workers(pid))]
        listed = [pid for pid in dict.fromkeys((*order, *session.threads)) if node_of(pid) == session.focus_node]
        return [row for pid in known.shown(listed) for row in self.threads_of(pid)]

    def threads_of(self, pid: int) -> list[ThreadRow]:
        """The threads of one process, as they were in its latest window, or means over the whole run."""
        session, own = self.session, self.session.threads[pid]
        figures = own.over(self._in_steps(pid)) or own.latest
        if figures is None:
            return []
        cores, name_of = session.nodes.of_process(pid).cores, session.worker_name
        process, sampled = session.process(pid), session.stacks[pid]
        gil_ratio = partial(session.gil[pid].ratio, session.step_stats[pid].steady_span().begin_s)
        return thread_rows(figures, process, sampled, self.native(pid), gil_ratio, cores, name_of)

    def process_threads(self, pid: int) -> Threads | None:
        """Thread figures of one process: the latest, or means over the steps."""
        return self.session.threads[pid].over(self._in_steps(pid))

    def training_thread(self, pid: int) -> MainThread:
        """Means of the thread of a process that trains, since its first step."""
        span = self._in_steps(pid, WINDOW_S)
        begin_s = max(span.begin_s, self.session.steady_span(pid).begin_s)
        return self.session.threads[pid].training(span._replace(begin_s=begin_s))

    def live_threads(self, node: int) -> list[Threads]:
        """Thread figures of every process on a node that lives, or lived in the whole run.

        One that came late or went early counts for less. Workers that lived one after the other, epoch by epoch, count
        as the last of them; the one that lived longest stands for all.
        """
        known, span, own = self.session.run_processes, self._in_steps(None), self.session.threads
        pids = self.session.pids_on(node)
        if span == LATEST:
            live = (own[pid].latest for pid in pids if not known.has_ended(pid))
            return [threads for threads in live if threads is not None]
        seconds = {pid: sums.seconds for pid in pids if (sums := own[pid].use.over(span)) is not None}
        longest_s = min(max(seconds.values(), default=0.0), span.end_s - span.begin_s)
        found = []
        for succession in known.successions(seconds) if longest_s > 0 else ():
            longest = max(succession, key=seconds.__getitem__)
            lived_s = seconds[longest]
            if len(succession) > 1:
                lived_s = sum(known.lived_s(pid, span.begin_s, min(self.now_s, span.end_s)) for pid in succession)
            if (threads := own[longest].over(span, min(1.0, lived_s / longest_s))) is not None:
                found.append(structs.replace(threads, pid=succession[-1]))
        return found

    @once
    def native(self, pid: int) -> dict[int, NativeUse]:
        """What the threads of a process ran over the span; only those that were sampled."""
        found = defaultdict[int, NativeUse](NativeUse)
        for (tid, library, phase), count in self.session.native[pid].counts(self.span_of(pid)).items():
            found[tid][library, phase] += count
        return found

    def disk_ratio(self, pid: int) -> float | None:
        """How much of the time a process's main thread waits for the disk; at one moment, that is 0 or 1."""
        return self.session.threads[pid].disk_ratio(self._in_steps(pid))

    def cores_taken(self, node: int) -> CoresTaken | None:
        """Cores of a node that the run could not have: lately, or over its steps."""
        cost = self.session.cost
        return self.session.nodes.of(node).cores_taken(self._in_steps(None), cost.cpu_ratio if cost else 0.0)

    def _in_steps(self, pid: int | None, last_s: float = LATEST.last_s) -> Span:
        """``span_of``, but empty before the first step; a recent view has its last seconds, or the latest window."""
        span = self.span_of(pid, last_s)
        return NEVER if span == EVER else span

    # -- DataLoaders

    @once
    def loaders(self, pid: int) -> tuple[LoaderRow, ...]:
        """The DataLoaders of a process, in the last 30 s those in which they were used; those for training first."""
        session = self.session
        ended, name_of = session.run_processes.has_ended, session.worker_name
        return session.loaders[pid].rows(self.now_s, self.span_of(pid), ended, name_of)

    # -- GPUs

    def gpus(self, node: int | None = None) -> list[GpuRow]:
        """The GPUs of a node (None: the one in focus), those the run uses first."""
        return self._gpus(self.session.focus_node if node is None else node)

    def gpus_of(self, pid: int) -> list[GpuRow]:
        """The GPUs that a process reports to use."""
        process = self.session.process(pid)
        return [row for row in self._gpus(node_of(pid)) if process is not None and process.uses(row.latest)]

    def all_gpus(self) -> list[GpuRow]:
        """The GPUs of all nodes of the run."""
        nodes = sorted(self.session.nodes.known) or [self.session.focus_node]
        return [row for node in nodes for row in self._gpus(node)]

    @once
    def _gpus(self, node: int) -> list[GpuRow]:
        session, focus = self.session, self.session.trainer()
        process, per_second = self.process(focus), self.step_totals(focus).sums.per_second
        processes = [session.run_processes.known[pid] for pid in session.pids_on(node)]
        devices = session.nodes.of(node).devices
        spans = self.stepping_spans() or [SteppingSpan(self.now_s - WINDOW_S, self.now_s)]
        course, interval_s = self.span_of(None), session.interval_s
        return gpu_rows(devices, self.now_s, processes, process, per_second, spans, course, interval_s)

    def compiler_events(self, pid: int, *whats: CompilerWork) -> list[CompilerEvents]:
        """Events of torch.compile in a process over the span, the longest first."""
        return self.session.compilers[pid].events(*whats, span=Span(self.now_s - self.span_of(pid).last_s))

    @once
    def gpu_time(self, pid: int) -> GpuTimeRow | None:
        """A process's steps on the GPU's clock; None where none were timed."""
        return self.session.gpu_times[pid].over(self.span_of(pid), self.now_s)
