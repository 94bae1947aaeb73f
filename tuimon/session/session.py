"""The state of one run, and a view of it over one span, which panes, rules, reports and metrics read."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct, structs

from tuimon.native_code import NativeUse
from tuimon.node_ids import node_of
from tuimon.records import NO_TORCH_YET, CompilerEvents, CompilerWork, Gpu, Place, Process, Record, Threads, bare_uuid
from tuimon.session.gpu_time import GpuTimeRow, TorchMemoryRow
from tuimon.session.gpus import GpuRow, gpu_rows
from tuimon.session.loaders import LoaderRow, worker_name
from tuimon.session.phase_table import PhaseTable, SplitShares, inferred_phases, phase_table
from tuimon.session.sampling import SPAN_S, Sampling, sampling
from tuimon.session.series import LATEST, NEVER, WHOLE_RUN, WINDOW_S, Span
from tuimon.session.stacks.process import RECENT, ProcessStacks
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.set_up import Checkpoints
from tuimon.session.steps import SharedStep, SteppingSpan, StepStats, StepSummary, Totals
from tuimon.session.tables import Tables, cached_query
from tuimon.session.threads import ThreadRow, TrainingThread, thread_rows

#: ``recent``: the last 30 s, or the last few steps if these take longer. ``whole``: the steady part of the run, from
#: its first step, or the end of its warm-up, to its last step.
SpanName = Literal["recent", "whole"]


T = TypeVar("T")


class Session(Tables):
    """One run as its records show it.

    ``add`` every record in order; query ``over`` a span at any time. Single-threaded, no clock, no I/O: live, replay
    and tests are the same fold. The session itself has facts that belong to no span, such as the latest value of each.
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
        """The view that people see: of the last 30 s, and of the whole run once it has ended, like the verdict."""
        return self.over("recent" if self.exit is None else "whole")

    def _close_views(self) -> None:
        for view in self._views.values():
            view.close()
        self._views.clear()

    def focus_on(self, pid: int) -> None:
        """Choose the training process that is in focus while it lasts; 0: the first one again."""
        self.chosen = pid
        self.answers.clear()
        self._close_views()

    @property
    def is_attached(self) -> bool:
        """True if the run may have begun long before its log."""
        return self.header is not None and self.header.mode == "attach"

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

    def worker_name(self, pid: int) -> str:
        return worker_name(pid, self.run_processes, self.loaders)

    # -- the machine; of a run on several nodes, that of the process in focus

    @property
    def focus_node(self) -> int:
        """The number (``node_ids``) of the node that the process in focus runs on."""
        return node_of(self.trainer())

    def trainers_here(self) -> list[int]:
        node = self.focus_node
        return [pid for pid in self.trainers() if node_of(pid) == node]

    @cached_query
    def pids_by_node(self) -> Mapping[int, list[int]]:
        """The processes of each node, in the order in which they came."""
        pids = defaultdict[int, list[int]](list)
        for pid in self.run_processes.known:
            pids[node_of(pid)].append(pid)
        return pids


class SessionView:
    """A Session at one moment, over one span: steps, samples and counters are all of that span.

    Immutable: queries are answered when they are first asked. Once another record has been added to the session, a
    query that needs the session raises RuntimeError. Over the whole run, processes that lived in the span count as
    alive.
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
            raise RuntimeError("this view is out of date: records have been added to the session since")
        return self._session

    def close(self) -> None:
        """Drop all cached answers: the session moves on."""
        self._session = None
        self.answers.clear()

    @cached_query
    def of(self, pid: int) -> ProcessView:
        """One process over this span."""
        return ProcessView(pid, self)

    @property
    def focus(self) -> ProcessView:
        return self.of(self.session.trainer())

    # -- what docs/python.md promises to programs

    def phases(self, pid: int) -> PhaseTable:
        """The phases of a process."""
        return self.of(pid).phases

    def samples(self, pid: int, tid: int | None = None) -> Samples:
        """The stack samples of a process's training thread, or of another of its threads."""
        return self.of(pid).samples if tid is None else self.of(pid).samples_of(tid)

    def loaders(self, pid: int) -> tuple[LoaderRow, ...]:
        """The DataLoaders of a process."""
        return self.of(pid).loaders

    # -- processes

    def processes(self) -> list[Process]:
        """All processes of the run, trainers first, ended ones last."""
        return [self.in_span(process) for process in self.session.processes()]

    def in_span(self, process: Process) -> Process:
        """A process's record; over the whole run it counts as alive if it lived in that span."""
        return structs.replace(process, ended=False) if process.ended and process.t >= self.lived_s else process

    @cached_property
    def lived_s(self) -> float:
        """Processes that ended after this moment count as alive; over the whole run, all that lived in it do."""
        span = self.focus.span
        return span.begin_s if span.last_s == math.inf else math.inf

    @cached_query
    def stepping_spans(self) -> list[SteppingSpan]:
        """When the process in focus made the steps that its phases cover; empty before the first, and unmarked."""
        return self.focus.stats.spans(self.focus.span)

    def sampling(self) -> Sampling | None:
        """The quality and the cost of sampling the training processes of one node; None before the first window."""
        session, focus = self.session, self.session.trainer()
        trainers = session.trainers() or [focus]
        samplers = [session.samplers[pid] for pid in sorted(trainers, key=lambda pid: pid != focus)]
        if not self.is_whole:
            cpu_ratio = session.cost.sampler_cpu_ratio if session.cost is not None else None
            return sampling(samplers, Span(self.now_s - SPAN_S, self.now_s), cpu_ratio)
        whole_s = self.now_s - (self.now_s if session.sampled_since_s is None else session.sampled_since_s)
        nodes = max(1, len(session.nodes.known))
        return sampling(samplers, WHOLE_RUN, session.sampling_cost_s / whole_s / nodes if whole_s > 0 else None)

    # -- nodes

    def threads(self) -> list[ThreadRow]:
        """All threads on the node in focus: trainers' first, their workers next, then the rest."""
        session, known = self.session, self.session.run_processes
        order: list[int] = []
        for pid in session.trainers_here():
            order += [pid, *(worker.pid for worker in known.workers(pid))]
        listed = [pid for pid in dict.fromkeys((*order, *session.threads)) if node_of(pid) == session.focus_node]
        return [row for pid in known.shown(listed) for row in self.of(pid).threads]

    def live_threads(self, node: int) -> list[Threads]:
        """Thread figures of every process on a node that lives, or lived in the whole run.

        A thread that started late or ended early counts for less. Workers that lived one after the other, epoch by
        epoch, count as one row: the figures of the worker that lived longest, under the last one's name.
        """
        known, span, own = self.session.run_processes, self.focus.threads_span, self.session.threads
        pids = self.session.pids_by_node()[node]
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

    def gpus(self) -> list[GpuRow]:
        """The GPUs of the node in focus, those the run uses first."""
        return self.gpus_on(self.session.focus_node)

    def all_gpus(self) -> list[GpuRow]:
        """The GPUs of all nodes of the run."""
        nodes = sorted(self.session.nodes.known) or [self.session.focus_node]
        return [row for node in nodes for row in self.gpus_on(node)]

    @cached_query
    def gpus_on(self, node: int) -> list[GpuRow]:
        """The GPUs of a node, those the run uses first."""
        session, focus = self.session, self.focus
        processes = [session.run_processes.known[pid] for pid in session.pids_by_node()[node]]
        devices, per_second = session.nodes.of(node).devices, focus.totals.sums.per_second
        spans = self.stepping_spans() or [SteppingSpan(self.now_s - WINDOW_S, self.now_s)]
        return gpu_rows(
            devices, self.now_s, processes, focus.process, per_second, spans, focus.span, session.interval_s
        )


class cached_view_property(Generic[T]):
    """A property of a process in a view whose value is kept as long as the view, for rules and panes."""

    def __init__(self, read: Callable[[Any], T]) -> None:  # Any: a kind of ProcessView
        self._read, self._name, self.__doc__ = read, read.__name__, read.__doc__

    def __get__(self, own: ProcessView, _owner: object = None) -> T:
        answers, key = own.answers, (self._read, own.pid)
        if key not in answers:
            answers[key] = self._read(own)
        found: T = own.__dict__.setdefault(self._name, answers[key])
        return found


class ProcessView(Struct, frozen=True, dict=True):
    """One process at the moment and over the span of a view; each figure is worked out once, when it is first asked."""

    pid: int
    view: SessionView

    @property
    def answers(self) -> dict[object, Any]:
        return self.view.answers

    @cached_view_property
    def process(self) -> Process:
        """Its latest record, or one without facts; over the whole run it counts as alive if it lived in that span."""
        known = self.view.session.process(self.pid)
        if known is None:
            return Process(t=0.0, pid=self.pid, ppid=0, start_unix_s=0.0, command=[], role="other", markers=False)
        return self.view.in_span(known)

    @property
    def node(self) -> int:
        """The number of the node that it runs on."""
        return node_of(self.pid)

    @property
    def host(self) -> str | None:
        """The node that it runs on, by its host name."""
        session = self.view.session
        node = session.nodes.known.get(self.node)
        return node.host if node is not None else session.header.host if session.header is not None else None

    @cached_view_property
    def workers(self) -> list[Process]:
        """Its live DataLoader workers; over the whole run, when all have ended, those that were the last."""
        return self.view.session.run_processes.workers(self.pid, self.view.lived_s)

    @property
    def recent_workers(self) -> list[Process]:
        """All its DataLoader workers that lived in the span, as some loaders start new ones for every epoch."""
        span = self.view.focus.span
        since_s = max(span.begin_s, self.view.now_s - span.last_s)
        return self.view.session.run_processes.workers_since(self.pid, since_s)

    # -- spans

    @cached_view_property
    def span(self) -> Span:
        """The span that its figures cover: its steady part, or the last seconds."""
        return self.steady_span if self.view.is_whole else RECENT

    @cached_view_property
    def steady_span(self) -> Span:
        """The steady part of its steps; without steps of its own, that of the process in focus.

        Without markers it begins where samples show the first step.
        """
        session = self.view.session
        focus = session.trainer() or self.pid
        own = self.pid if self.is_marked else focus
        if own in session.step_stats:
            return session.step_stats[own].steady_span()
        process, sampled = session.process(focus), session.stacks[focus]
        is_shown = sampled.has_whole_step and process is not None and not process.markers
        return Span(sampled.begin_s) if is_shown else WHOLE_RUN

    @cached_view_property
    def threads_span(self) -> Span:
        """The span of its threads' figures: the steady part, empty before the first step; or the latest window."""
        if not self.view.is_whole:
            return LATEST
        return NEVER if self.span == WHOLE_RUN else self.span

    # -- steps and phases

    @property
    def stats(self) -> StepStats:
        """Its steps since the marker stream began; none without markers."""
        return self.view.session.step_stats[self.pid]

    @property
    def is_marked(self) -> bool:
        """True if markers delimit its steps."""
        return self.pid in self.view.session.step_stats

    @cached_view_property
    def phases(self) -> PhaseTable:
        """Phase breakdown; empty before the first step.

        Without markers the shares are inferred from its training thread's stack samples.
        """
        if self.is_marked:
            return phase_table(self.pid, self.totals, self.split)
        sampled, found = self.stacks, self.samples
        wait_s = 2 * self.view.session.interval_s + 2.0  # the first markers take up to two intervals
        may_come = self.process.markers_reason == NO_TORCH_YET and self.view.now_s - sampled.begin_s < wait_s
        if self.process.markers or may_come or not sampled.has_whole_step:
            return PhaseTable(self.pid)
        return inferred_phases(
            self.pid, found.marked_counts(), found.covered_s, found.unsure, forward_only=sampled.forward_only
        )

    @cached_view_property
    def totals(self) -> Totals:
        """Sums over the steps; without markers empty."""
        return self.stats.over(self.span)

    @property
    def steps(self) -> StepSummary | None:
        """Step count, rate and times.

        Without markers: None, or only the latest rate, estimated from the order of its stack samples (``estimated``).
        """
        if self.is_marked:
            return self.stats.summary(self.totals)
        since_s = max(self.view.now_s - SPAN_S, self.stacks.begin_s)
        per_second = self.view.session.samplers[self.pid].steps_per_second(since_s)
        return None if per_second is None or self.process.markers else StepSummary(0, None, None, per_second, 0)

    @cached_view_property
    def split(self) -> SplitShares:
        """How the time that markers cannot split is divided."""
        return self.samples.split.with_optimizer(self.totals.sums.phases_ns)

    @property
    def shared_steps(self) -> Sequence[SharedStep]:
        """Single steps of a rank, to compare with those of the others; over a whole run, evenly spread ones."""
        return self.stats.shared.over(self.view.focus.span)

    # -- stack samples

    @property
    def stacks(self) -> ProcessStacks:
        """Its stack samples since the run began."""
        return self.view.session.stacks[self.pid]

    @property
    def tid(self) -> int:
        """The thread that trains: the main one, unless markers or samples show another."""
        return self.stacks.tid

    @property
    def samples(self) -> Samples:
        """The stack samples of the thread that trains."""
        return self.stacks.over(self.span)

    @property
    def place(self) -> Place | None:
        """The user's line at which it trains, in the latest window of samples."""
        return self.stacks.threads.place_of(self.tid)

    def samples_of(self, tid: int, *, now: bool = False) -> Samples:
        """The stack samples of one of its threads.

        ``now``: with those taken since its last step, however long ago that ended.
        """
        return self.stacks.over(self.span, tid, now=now)

    def sampled_tids(self, *, now: bool = False) -> list[int]:
        """The threads with samples, the one that trains first."""
        return self.stacks.tids(self.span, now=now)

    @property
    def checkpoints(self) -> Checkpoints | None:
        """Its checkpoints since its first steps; None unless it was seen to write, and to save checkpoints.

        If there are fewer samples of saving than bursts of writing, it is unknown which bursts are checkpoints.
        """
        threads, spent = self.view.session.threads[self.pid], self.stacks.spent
        bursts, burst_bytes = threads.written()
        if not burst_bytes or spent.saves < (bursts or 1):
            return None
        seconds = spent.in_loop["checkpoint"] + spent.since_step["checkpoint"]
        return Checkpoints(bursts, burst_bytes, seconds, threads.written_to) if seconds else None

    def compiler_events(self, *whats: CompilerWork) -> list[CompilerEvents]:
        """Events of torch.compile over the span, the longest or most frequent first."""
        return self.view.session.compilers[self.pid].events(*whats, span=Span(self.view.now_s - self.span.last_s))

    # -- threads

    @cached_view_property
    def threads(self) -> list[ThreadRow]:
        """Its threads with their roles, as they were in its latest window, or means over the whole run."""
        session, figures = self.view.session, self.thread_figures or self.view.session.threads[self.pid].latest
        if figures is None:
            return []
        cores, name_of = session.nodes.of(self.node).cores, session.worker_name
        gil_ratio = partial(session.gil[self.pid].ratio, self.stats.steady_span().begin_s)
        return thread_rows(figures, session.process(self.pid), self.stacks, self.native, gil_ratio, cores, name_of)

    @cached_view_property
    def thread_figures(self) -> Threads | None:
        """The use of its threads, without their roles: the latest, or means over the steps."""
        return self.view.session.threads[self.pid].over(self.threads_span)

    @cached_view_property
    def training(self) -> TrainingThread:
        """Means of the thread that trains, since its first step."""
        recent = Span(self.steady_span.begin_s, last_s=WINDOW_S)
        return self.view.session.threads[self.pid].training(self.threads_span if self.view.is_whole else recent)

    @property
    def native(self) -> dict[int, NativeUse]:
        """The libraries that its threads ran over the span, for threads that were sampled."""
        found = defaultdict[int, NativeUse](NativeUse)
        for (tid, library, phase), count in self.view.session.native[self.pid].counts(self.span).items():
            found[tid][library, phase] += count
        return found

    # -- DataLoaders and GPUs

    @cached_view_property
    def loaders(self) -> tuple[LoaderRow, ...]:
        """Its DataLoaders, in the last 30 s those in which they were used; those for training first."""
        session = self.view.session
        ended, name_of = session.run_processes.has_ended, session.worker_name
        return session.loaders[self.pid].rows(self.view.now_s, self.span, ended, name_of)

    @property
    def gpus(self) -> list[GpuRow]:
        """The GPUs that it reports to use."""
        return [row for row in self.view.gpus_on(self.node) if self.process.uses(row.latest)]

    @property
    def devices(self) -> list[Gpu]:
        """The latest record of each of them."""
        latest = (device.latest for device in self.view.session.nodes.of(self.node).devices.values())
        return [gpu for gpu in latest if self.process.uses(gpu)]

    @cached_view_property
    def torch_memory(self) -> list[TorchMemoryRow]:
        """The memory that torch's allocator holds, by device."""
        named = {bare_uuid(gpu.uuid): gpu.uuid for gpu in self.devices}
        uuids = [named.get(bare_uuid(uuid), uuid) for uuid in self.process.gpu_uuids]
        return self.view.session.gpu_times[self.pid].memory(uuids)

    @cached_view_property
    def gpu_time(self) -> GpuTimeRow | None:
        """Its steps on the GPU's clock; None if none were timed."""
        return self.view.session.gpu_times[self.pid].over(self.span, self.view.now_s)
