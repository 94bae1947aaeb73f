"""The report of a run over one span: part by part for screen, lines and metrics, and as a whole."""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from tuimon.diagnosis.finding import CodePlace, Finding, FindingJson, PlaceJson, VerdictChange
from tuimon.node_ids import own_id
from tuimon.records import BETWEEN, PHASES, Exit, length_bucket
from tuimon.session.gpu_time import GpuTimeRow
from tuimon.session.loaders import LoaderRow, LoaderWorkerRow
from tuimon.session.processes import superseded
from tuimon.session.progress import Progress, progress_of, run_progress
from tuimon.session.ranks import RankRow, rank_rows, training_numbers, training_of, training_rows, which_training
from tuimon.session.series import WINDOW_S, mean_of_known
from tuimon.session.session import ProcessView, Session, SessionView
from tuimon.session.standstills import PastStandstill, group_json, standing_groups
from tuimon.session.state import PARTS, ended_before_torch, goodput, run_state, stands_still, unseen_trainings
from tuimon.session.steps import StepStats, StepSummary
from tuimon.session.tables import cached_query
from tuimon.threshold import SMALL
from tuimon.torch_code import makes_batch
from tuimon.views import report_types as types
from tuimon.views.finding_text import headline_text
from tuimon.views.format import ON_PAGE, says_nothing
from tuimon.views.report_types import STEP_BOUNDS, WELL, Report, SpanJson, filled
from tuimon.views.run_text import (
    end_tip,
    goodput_text,
    memory_lines,
    progress_text,
    sampling_text,
    standstill_line,
    state_text,
    trace_text,
    traced_gpu_idle,
    unseen_text,
)
from tuimon.views.scale import Axis, axis_of

if TYPE_CHECKING:
    from tuimon.diagnosis.evidence.evidence import Evidence

#: Most trainings that are listed, and most findings of each.
_TRAININGS, _FINDINGS = 16, 3
#: For each bound, the last bucket below it of the log's histogram, whose buckets are 1 % wide.
_LAST_BUCKETS = tuple(length_bucket(round(bound * 1e9)) for bound in STEP_BOUNDS)


class Parts:
    """The parts of a report over the span of a view, named as its fields; each is made when it is first read.

    They hold as long as the view does: until the session has merged another record.
    """

    def __init__(self, view: SessionView) -> None:
        self.view, self.own = view, view.focus  # ``own``: the process in focus, with pid 0 before any

    @property
    def session(self) -> Session:
        return self.view.session

    # -- the run and its state

    @property
    def span_name(self) -> str:
        """The name of the time that the figures cover."""
        if self.session.exit is not None:
            return "whole run"
        return "run so far" if self.session.now_s - self.session.start_s < WINDOW_S else "last 30s"

    @cached_property
    def run(self) -> types.RunJson:
        """The recording; the name of its log is left open."""
        header, end = self.session.header, self.session.exit
        return filled(
            types.RunJson,
            end or Exit(t=0.0, pid=0, exit_code=None),
            log="",
            command=header.command if header else [],
            mode=header.mode if header else None,
            host=header.host if header else None,
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(header.wall_unix_s)) if header else None,
            started_unix_s=round(header.wall_unix_s) if header else None,
            duration_s=self.session.now_s - self.session.start_s,
            cpu_count=header.cpu_count if header else None,
            name=header.run if header else None,
            node_count=len(self.nodes),
            nodes=self.nodes,
            versions=header.versions if header else {},
            ended=end is not None,
            raised_at=PlaceJson.of(end.raised_at) if end else None,
            survivors=[own_id(pid) for pid in end.survivors] if end else [],
            notices=self.notices,
        )

    @cached_property
    def nodes(self) -> list[types.NodeJson]:
        """The machines of a run on several, first those that are not well."""
        known = self.session.nodes.known.values()
        ordered = sorted(known, key=lambda node: (node.state in WELL, not node.exit_code, -node.behind_s, node.number))
        return [filled(types.NodeJson, node) for node in ordered]

    @cached_property
    def notices(self) -> list[types.NoticeJson]:
        """The latest of each source."""
        return [filled(types.NoticeJson, each) for each in self.session.notices.values()]

    @cached_property
    def state(self) -> types.StateJson:
        """The last state of the training."""
        state = run_state(self.session)
        return filled(types.StateJson, state, where=PlaceJson.of(state.place), text=state_text(state))

    @cached_property
    def stands_still(self) -> bool:
        """True if no step has come to a boundary for long: then figures of steps are past."""
        return stands_still(self.session)

    @cached_property
    def unseen(self) -> list[types.UnseenJson]:
        """Processes that work like a training and show no step."""
        found = unseen_trainings(self.session)
        return [filled(types.UnseenJson, each, pid=own_id(each.pid), text=unseen_text(each)) for each in found]

    @property
    def tip(self) -> str | None:
        """Advice after the end of the run; None while it goes on, or if there is none."""
        end = self.session.exit
        return end_tip(end, before_torch=ended_before_torch(self.session)) if end is not None else None

    @cached_property
    def goodput(self) -> types.GoodputJson | None:
        """The parts of the wall time, in order; None before any time has passed."""
        divided = goodput(self.session)
        if divided is None:
            return None
        known, seconds = divided.parts, divided.total_s
        parts = [types.GoodputPart(part, known[part], known[part] / seconds) for part in PARTS if part in known]
        text = goodput_text(seconds, parts, is_attached=self.session.is_attached)
        return types.GoodputJson(seconds, parts, text)

    # -- the process in focus

    @property
    def phases(self) -> list[types.Phase]:
        """Its phases, with their times on the GPU."""
        return steps_on_gpu(self.own)[0]

    @property
    def gpu_time(self) -> GpuTimeRow | None:
        """Its steps on the GPU's clock."""
        return steps_on_gpu(self.own)[1]

    @cached_property
    def phases_of(self) -> str:
        """The name of the rank or training that the phases belong to, if there are several."""
        return which_training(self.session, of_rank=True)

    @cached_property
    def progress(self) -> types.ProgressJson | None:
        """Its progress; None if unknown."""
        made = run_progress(self.session.shown().focus) if self.own.pid else Progress()
        return filled(types.ProgressJson, made, text=progress_text(made)) if made != Progress() else None

    @cached_property
    def axis(self) -> Axis:
        """The time that all charts of a screen show."""
        return axis_of(self.session)

    # -- ranks and GPUs

    @cached_property
    def ranks(self) -> list[types.Rank]:
        """All training processes, and earlier starts of the ranks in focus."""
        session, pids = self.session, self.session.trainers()
        rows = {row.pid: row for row in compared_ranks(self.view)} if len(pids) > 1 else {}
        gone = superseded((rank.process for rank in training_of(self.own)), session.processes()) if rows else ()
        earlier, numbers = {process.pid for process in gone}, training_numbers(session)
        return [
            _rank(self.view.of(each), rows.get(each), numbers.get(each, 0), is_earlier=each in earlier)
            for each in dict.fromkeys((*pids, *rows))
        ]

    @property
    def alive(self) -> int:
        """Training processes that have not ended."""
        return 0 if self.run.ended else sum(rank.ended_s is None for rank in self.ranks)

    @cached_property
    def gpus(self) -> list[types.GpuJson]:
        """The GPUs of all nodes."""
        return [
            filled(
                types.GpuJson,
                row,
                host=self.view.of(row.latest.pid).host,
                latest=structs.replace(row.latest, pid=0, pids=[], processes=[]),  # ids mean nothing on another node
            )
            for row in self.view.all_gpus()
        ]


def _evidence(own: ProcessView) -> Evidence:
    from tuimon.diagnosis.evidence.evidence import evidence_of  # noqa: PLC0415  (the first frame does without)

    return evidence_of(own)


@cached_query
def parts_of(view: SessionView) -> Parts:
    """The parts over the span of a view, the same for all who ask."""
    return Parts(view)


@cached_query
def steps_on_gpu(own: ProcessView) -> tuple[list[types.Phase], GpuTimeRow | None]:
    """The phases of a process and its steps on the GPU's clock, with the idle time that the verdict uses."""
    times, step_ms = own.gpu_time, own.phases.mean_ms
    if step_ms and times is not None:
        gpu = _evidence(own).gpu.steps
        times = gpu.time if gpu is not None else times
    phases = []
    for row in own.phases.rows:
        phase = filled(types.Phase, row, gpu_ms_per_step=None, gpu_idle_ms_per_step=None)
        phases.append(phase)
        share = times.phases.get(row.name) if times is not None else None
        if step_ms and share is not None:
            span_ms = phase.gpu_ms_per_step = step_ms * share.span
            low_ms, high_ms = phase.gpu_idle_ms_low, phase.gpu_idle_ms_high = share.idle.up_to(share.span).times(
                step_ms
            )
            if high_ms - low_ms <= SMALL * step_ms and not says_nothing(low_ms, high_ms, span_ms):
                phase.gpu_idle_ms_per_step = (low_ms + high_ms) / 2
    return phases, times


@cached_query
def loaders_of(own: ProcessView) -> list[LoaderRow]:
    """The loaders of a process with the hottest line of each worker, and its CPU, 1.0 for one core."""

    def of(worker: LoaderWorkerRow) -> LoaderWorkerRow:
        if worker.pid == own.pid:  # the training process makes its batches itself
            made = own.samples.inside(lambda frame: makes_batch(frame.file, frame.function))
            return structs.replace(worker, hot=next(iter(made.lines()), None))
        process = own.view.of(worker.pid)
        cpu_ratio = process.thread_figures.cpu_ratio if process.thread_figures is not None else None
        hot = next(iter(process.samples.without_imports.lines()), None)
        return structs.replace(worker, cpu_ratio=cpu_ratio, hot=hot)

    return [row._replace(worker_rows=tuple(of(worker) for worker in row.worker_rows)) for row in own.loaders]


def compared_ranks(view: SessionView) -> tuple[RankRow, ...]:
    """The ranks of the training in focus as rules compare them: by their GPUs' clocks, if all have times there."""
    return _evidence(view.focus).ranks if rank_rows(view) else ()


def marked(steps: StepSummary | None) -> StepSummary:
    """The steps that markers show."""
    return StepSummary(0, None, None, None, 0) if steps is None or steps.estimated else steps


def _rank(own: ProcessView, row: RankRow | None, training: int, *, is_earlier: bool) -> types.Rank:
    """A rank of the report; ``is_earlier``: another process has taken its rank since."""
    session, process, threads = own.view.session, own.process, own.thread_figures
    phases, times = steps_on_gpu(own)
    on_gpu = None
    if times is not None:
        on_gpu = types.GpuTimeJson(*times.idle, list(times.leads))
    made = progress_of(session.shown().of(own.pid))
    is_in_focus = own.pid == session.trainer()
    return filled(
        types.Rank,
        row,
        pid=own_id(own.pid),
        host=own.host if session.nodes.known else None,
        in_focus=is_in_focus,
        ended_s=process.t - session.start_s if session.run_processes.has_ended(own.pid) else None,
        rank=process.rank,
        world_size=process.world_size,
        markers=process.markers,
        gpus=list(process.gpu_uuids),
        steps=marked(own.steps),
        phases=phases,
        samples_per_s=made.samples_per_s,
        tokens_per_s=made.tokens_per_s,
        flops_per_s=made.flops_per_s,
        mfu_ratio=made.mfu_ratio,
        left_s=made.left_s if made.left_of == "run" else None,
        cpu_ratio=threads.cpu_ratio if threads is not None else None,
        rss_bytes=threads.rss_bytes if threads is not None else None,
        gpu_time=on_gpu,
        torch_memory=own.torch_memory,
        loaders=[_loader(each) for each in (loaders_of(own) if is_in_focus else own.loaders)],
        checkpoints=own.checkpoints,
        since_start=_since_start(session, own.stats) if own.is_marked else None,
        state=row.state if row is not None else "restarted" if is_earlier else None,
        training=training,
    )


def _loader(row: LoaderRow) -> types.LoaderJson:
    facts = row.facts
    return filled(
        types.LoaderJson,
        row,
        role=row.latest.role,
        facts=structs.replace(facts, item=None, collate=None),
        busy_ratio=mean_of_known(worker.busy_ratio for worker in row.worker_rows) if facts.workers else None,
        workers=[
            filled(types.LoaderWorkerJson, worker, where=filled(CodePlace, hot.place) if hot else None)
            for worker in row.worker_rows
            for hot in (worker.hot,)
        ],
    )


def _since_start(session: Session, stats: StepStats) -> types.SinceStart:
    totals, header, last_s = stats.since_start(), session.header, stats.last_step_s
    counts = [0] * (len(_LAST_BUCKETS) + 1)
    for bucket, steps in totals.histogram.items():
        counts[bisect_left(_LAST_BUCKETS, bucket)] += steps
    phases_ns = totals.sums.phases_ns
    return types.SinceStart(
        steps=stats.total,
        dropped=stats.dropped,
        phase_s={name: phases_ns[name] / 1e9 for name in (*PHASES, BETWEEN) if name in phases_ns},
        eval_count=int(totals.sums.eval_count),
        gc_s=totals.sums.gc_ns / 1e9 if totals.sums.gc_span_s else None,
        timed_s=totals.timed_s,
        timed_counts=counts,
        last_step_unix_s=round(header.wall_unix_s + last_s - header.t) if header and last_s is not None else None,
    )


# -- the whole


def report_of(
    session: Session, findings: Iterable[Finding], log: str = "", changes: Iterable[VerdictChange] = ()
) -> Report:
    """The report over the whole run."""
    from tuimon.diagnosis.judging import unjudged  # noqa: PLC0415  (as above)
    from tuimon.views.report.sentences import summary_of  # noqa: PLC0415  (as above)

    trainings = _trainings(session)  # first: views do not outlive a change of the focus
    now = parts_of(session.over("whole"))
    sampling, stats, totals = now.view.sampling(), now.own.stats, now.own.stats.over()
    report = Report(
        schema=1,
        summary="",
        run=structs.replace(now.run, log=log),
        facts=run_facts(now),
        gpus=now.gpus,
        trainings=trainings,
        ranks=now.ranks,
        state=now.state,
        unseen=now.unseen,
        steps=marked(now.own.steps),
        progress=now.progress,
        goodput=now.goodput,
        span=SpanJson(int(totals.sums.first_step), stats.total - 1, totals.sums.span_s) if totals.steps else None,
        phases_of=now.phases_of,
        phases=now.phases,
        ranges=list(now.own.phases.ranges),
        sampling=filled(types.SamplingJson, sampling, text=sampling_text(sampling)) if sampling is not None else None,
        cost=structs.replace(session.cost, pid=0) if session.cost is not None else None,
        memory=[
            filled(types.MemoryJson, each, pid=own_id(each.pid), text=memory_lines(each))
            for each in session.memory_history.values()
        ],
        traces=[
            filled(types.TraceJson, t, pid=own_id(t.pid), gpu_idle=traced_gpu_idle(t), text=trace_text(t))
            for t in session.traces
        ],
        standstills=[_standstill(each, session) for each in session.standstills.past],
        findings=[FindingJson.of(finding) for finding in findings],
        changes=list(changes),
        unjudged=unjudged(session),
    )
    trained = set(map(own_id, session.trainers()))
    ranks = [rank for rank in report.ranks if rank.pid in trained and rank.state != "restarted"]
    if len(ranks) > ON_PAGE:
        report.ranks_summary = _summary(ranks)
    report.summary = summary_of(report)
    return report


def run_facts(now: Parts) -> types.RunFacts:
    """Facts of the run, and of its process in focus."""
    session, header, process, saved = now.session, now.session.header, now.own.process, now.own.checkpoints
    evidence, versions = _evidence(now.own), header.versions if header is not None else {}
    loader = evidence.data.loader.facts if evidence.data.loader is not None else None
    cuda = re.search(r"\+cu(\d+)(\d)", process.torch or "")  # of "2.11.0+cu130": 13.0
    return types.RunFacts(
        command=list(header.command) if header is not None else [],
        host=header.host or None if header is not None else None,
        nodes=max(1, len(session.nodes.known)),
        cpu_count=session.nodes.of(session.focus_node).all_cores,
        gpus=sorted(row.latest.name for row in now.view.gpus() if row.used_by_run),
        ranks=evidence.world_size,
        batch_size=loader.batch_size if loader is not None else None,
        workers=loader.workers if loader is not None else None,
        driver=versions.get("driver"),
        cuda=f"{cuda[1]}.{cuda[2]}" if cuda is not None else None,
        torch=process.torch,
        python=process.python,
        tuimon=versions.get("tuimon"),
        dtypes=list(process.parameter_dtypes),
        tf32=process.tf32,
        checkpoints_to=(saved.file_system or None) if saved is not None else None,
    )


def _summary(ranks: Sequence[types.Rank]) -> types.RanksSummary:
    """Summary of all ranks: least, median and most of steps and step times, the median of each phase's share."""
    from statistics import median  # noqa: PLC0415  (as above)

    def spread(values: Sequence[float]) -> list[float] | None:
        return [min(values), median(values), max(values)] if values else None

    shares = {name: [rank.phase_shares[name] for rank in ranks if name in rank.phase_shares] for name in PHASES}
    return types.RanksSummary(
        count=len(ranks),
        steps=spread([rank.steps.total for rank in ranks if rank.steps.total]),
        median_ms=spread([rank.steps.median_ms for rank in ranks if rank.steps.median_ms is not None]),
        phases=[types.RankShare(name, median(known)) for name, known in shares.items() if known],
    )


def _trainings(session: Session) -> list[types.Training]:
    """The trainings in the order in which they began; empty if there is only one."""
    rows = training_rows(session)
    return [
        filled(
            types.Training,
            row,
            pid=own_id(row.pid),
            command=list(row.command),
            steps=marked(session.over("whole").of(row.pid).steps),
            findings=_findings(session, row.pid),
        )
        for row in rows[:_TRAININGS]
        if len(rows) > 1
    ]


def _findings(session: Session, pid: int) -> list[types.TrainingFinding]:
    """The findings on the training that a process belongs to, judged by itself."""
    from tuimon.diagnosis.verdicts import Verdicts  # noqa: PLC0415  (as above)

    chosen = session.chosen
    session.focus_on(pid)
    try:
        found = Verdicts(session).judge_run() if session.trainer() else []
    finally:
        session.focus_on(chosen)
    return [filled(types.TrainingFinding, finding, headline=headline_text(finding)) for finding in found[:_FINDINGS]]


def _standstill(past: PastStandstill, session: Session) -> types.StandstillJson:
    return types.StandstillJson(
        at_s=past.since_s - session.start_s,
        step=past.step,
        lasted_s=past.ended_s - past.since_s if past.ended_s is not None else None,
        taken_after_s=past.taken.quiet_s,
        text=standstill_line(past, session),
        groups=[msgspec.convert(group_json(group), types.StandingGroup) for group in standing_groups(past.taken)],
        collectives=[
            filled(types.StuckCollective, one, elsewhere=[rank for rank, _ in one.elsewhere]) for one in past.stuck
        ],
    )
