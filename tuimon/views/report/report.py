"""The report of a session, built once for all its forms."""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from statistics import fmean, median

import msgspec
from msgspec import structs

from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.finding import CodePlace, Finding, FindingJson, VerdictChange
from tuimon.diagnosis.judging import unjudged
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.node_ids import own_id
from tuimon.records import BETWEEN, PHASES, length_bucket
from tuimon.session.gpus import GpuRow
from tuimon.session.loaders import LoaderRow
from tuimon.session.processes import superseded
from tuimon.session.progress import Progress, progress_of, rates_in, run_progress
from tuimon.session.ranks import RankRow, ranks_in_focus, training_numbers, training_rows, which_training
from tuimon.session.session import Session, SessionView, SpanName
from tuimon.session.stacks.call_tree import CallTree
from tuimon.session.stacks.samples import Samples
from tuimon.session.standing import Past, group_json, standing
from tuimon.session.state import PARTS, goodput, run_state, unseen_trainings
from tuimon.session.steps import StepStats, StepSummary, joined
from tuimon.views import report_types as types
from tuimon.views.finding_text import headline_text
from tuimon.views.gpu_text import compared_ranks, steps_on_gpu
from tuimon.views.report.sentences import summary_of
from tuimon.views.report_types import STEP_BOUNDS, WELL, PlaceJson, Report, ReportPage, filled
from tuimon.views.words import (
    goodput_text,
    gpu_idle_in,
    memory_lines,
    progress_text,
    sampling_text,
    standstill_line,
    state_text,
    trace_text,
    unseen_text,
    with_work,
)

#: With more ranks than this, the report has a summary of them.
FEW = 16
#: Most trainings that are listed, and most findings of each.
_TRAININGS, _FINDINGS = 16, 3
#: For each bound, the last bucket below it of the log's histogram, whose buckets are 1 % wide.
_LAST_BUCKETS = tuple(length_bucket(round(bound * 1e9)) for bound in STEP_BOUNDS)
#: Most GPUs whose counters are drawn.
DRAWN_GPUS = 16
#: Most stretches of the chart of steps: the page of a long run stays small.
_BARS = 240
#: Share of all samples from which a function is in a graph; its most callers; most functions of a graph.
_LEAST_SHARE, _DEPTH, _BOXES = 0.004, 32, 1500
#: Lines of code before and after that of a finding.
_AROUND = 3


def report_of(
    session: Session,
    findings: Iterable[Finding],
    log: str = "",
    changes: Iterable[VerdictChange] = (),
    span: SpanName = "whole",
) -> Report:
    """The report over a span of the run; trainings side by side are compared over the whole run alone."""
    trainings = _trainings(session) if span == "whole" else []  # first: views do not outlive a change of the focus
    pid, view = session.trainer(), session.over(span)
    table = view.phases(pid)
    process = session.process(pid)
    pids, state, sampling = session.trainers(), run_state(session), view.sampling()
    rows = {row.pid: row for row in compared_ranks(view)} if len(pids) > 1 else {}
    gone = superseded(ranks_in_focus(session), session.processes()) if rows else ()
    earlier, numbers = {process.pid for process in gone}, training_numbers(session)
    report = Report(
        schema=1,
        summary="",
        run=_run(session, log),
        facts=_facts(view, pid),
        gpus=[_gpu(session, row) for row in view.all_gpus()],
        trainings=trainings,
        ranks=[
            _rank(view, each, rows.get(each), numbers.get(each, 0), is_earlier=each in earlier)
            for each in dict.fromkeys((*pids, *rows))
        ],
        state=filled(types.StateJson, state, where=PlaceJson.of(state.place), text=state_text(state)),
        unseen=[filled(types.UnseenJson, u, pid=own_id(u.pid), text=unseen_text(u)) for u in unseen_trainings(session)],
        steps=_steps(view.steps(pid)),
        progress=_progress(session, pid) if pid else None,
        goodput=goodput_of(session),
        span=_span(session, pid),
        phases_of=which_training(session).text_of_rank(process.rank if process is not None else None),
        phases=steps_on_gpu(view, pid)[0],
        ranges=list(table.ranges),
        sampling=filled(types.SamplingJson, sampling, text=sampling_text(sampling)) if sampling is not None else None,
        cost=structs.replace(session.cost, pid=0) if session.cost is not None else None,
        memory=[
            filled(types.MemoryJson, each, pid=own_id(each.pid), text=memory_lines(each))
            for each in session.memory_history.values()
        ],
        traces=[filled(types.TraceJson, t, gpu_idle=gpu_idle_in(t), text=trace_text(t)) for t in session.traces],
        standstills=[_standstill(each, session) for each in session.standstills.past],
        findings=[FindingJson.of(finding) for finding in findings],
        changes=list(changes),
        unjudged=unjudged(session),
    )
    if len(pids) > FEW:
        report.ranks_summary = _summary([rank for rank in report.ranks if rank.pid in map(own_id, pids)])
    report.summary = summary_of(report)
    return report


# -- the run and its state


def _run(session: Session, log: str) -> types.RunJson:
    header, end, nodes = session.header, session.exit, list(session.nodes.known.values())
    ordered = sorted(nodes, key=lambda node: (node.state in WELL, not node.exit_code, -node.behind_s, node.number))
    return types.RunJson(
        log=log,
        command=header.command if header else [],
        mode=header.mode if header else None,
        host=header.host if header else None,
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(header.wall_unix_s)) if header else None,
        started_unix_s=round(header.wall_unix_s) if header else None,
        duration_s=session.now_s - session.start_s,
        cpu_count=header.cpu_count if header else None,
        name=header.run if header else None,
        node_count=len(nodes),
        nodes=[filled(types.NodeJson, node) for node in ordered],
        versions=header.versions if header else {},
        ended=end is not None,
        exit_code=end.exit_code if end else None,
        signal=end.signal if end else None,
        last_line=end.last_line if end else None,
        raised_at=PlaceJson.of(end.raised_at) if end else None,
        survivors=[own_id(pid) for pid in end.survivors] if end else [],
        notices=[filled(types.NoticeJson, each) for each in session.notices.values()],
    )


def _facts(view: SessionView, pid: int) -> types.RunFacts:
    session, header = view.session, view.session.header
    process = session.process(pid)
    versions = header.versions if header is not None else {}
    cuda = re.search(r"\+cu(\d+)(\d)", (process and process.torch) or "")  # of "2.11.0+cu130": 13.0
    facts = types.RunFacts(
        command=list(header.command) if header is not None else [],
        host=header.host or None if header is not None else None,
        nodes=max(1, len(session.nodes.known)),
        cpu_count=session.nodes.of(session.focus_node).all_cores,
        driver=versions.get("driver"),
        cuda=f"{cuda[1]}.{cuda[2]}" if cuda is not None else None,
        tuimon=versions.get("tuimon"),
    )
    if process is None:
        return facts
    evidence, saved = evidence_of(view, pid), session.checkpoints(pid)
    loader = evidence.data.loader.facts if evidence.data.loader is not None else None
    return structs.replace(
        facts,
        gpus=sorted(row.latest.name for row in view.gpus() if row.used_by_run),
        ranks=evidence.world_size,
        batch_size=loader.batch_size if loader is not None else None,
        workers=loader.workers if loader is not None else None,
        torch=process.torch,
        python=process.python,
        dtypes=list(process.parameter_dtypes),
        tf32=process.tf32,
        checkpoints_to=(saved.file_system or None) if saved is not None else None,
    )


def _span(session: Session, pid: int) -> types.SpanJson | None:
    """The steps that phases, findings and their evidence cover; None without markers."""
    stats = session.step_stats[pid]
    totals = stats.over()
    if not totals.steps:
        return None
    return types.SpanJson(int(totals.sums.first_step), stats.total - 1, totals.sums.span_s)


def _progress(session: Session, pid: int) -> types.ProgressJson | None:
    """What is known of a process's progress; None if nothing is."""
    made = run_progress(session, pid)
    return filled(types.ProgressJson, made, text=progress_text(made)) if made != Progress() else None


def goodput_of(session: Session) -> types.GoodputJson | None:
    """The parts of the wall time, in order; None before any time has passed."""
    divided = goodput(session)
    if divided is None:
        return None
    known, seconds = divided.parts, divided.total_s
    parts = [types.GoodputPart(part, known[part], known[part] / seconds) for part in PARTS if part in known]
    return types.GoodputJson(seconds, parts, goodput_text(seconds, parts))


# -- steps and phases


def _steps(steps: StepSummary | None) -> StepSummary:
    """The steps that markers show."""
    return StepSummary(0, None, None, None, 0) if steps is None or steps.estimated else steps


# -- ranks and trainings


def _rank(view: SessionView, pid: int, row: RankRow | None, training: int, *, is_earlier: bool) -> types.Rank:
    """A rank of the report; ``is_earlier``: another process has taken its rank since."""
    session, process, threads = view.session, view.session.process(pid), view.process_threads(pid)
    phases, times = steps_on_gpu(view, pid)
    on_gpu = None
    if times is not None:
        on_gpu = types.GpuTimeJson(*times.idle, list(times.leads))
    rates, made = rates_in(view, pid), progress_of(session, pid)
    stats, is_in_focus = session.step_stats.get(pid), pid == session.trainer()
    loaders = view.loaders(pid)
    return filled(
        types.Rank,
        row,
        pid=own_id(pid),
        host=session.host_of(pid) if session.nodes.known else None,
        in_focus=is_in_focus,
        ended_s=process.t - session.start_s if process and process.ended else None,
        rank=process.rank if process else None,
        world_size=process.world_size if process else None,
        markers=process.markers if process else False,
        gpus=list(process.gpu_uuids) if process else [],
        steps=_steps(view.steps(pid)),
        phases=phases,
        samples_per_s=rates.samples,
        tokens_per_s=rates.tokens,
        flops_per_s=made.flops_per_s,
        mfu_ratio=made.mfu_ratio,
        left_s=made.left_s if made.left_of == "run" else None,
        cpu_ratio=threads.cpu_ratio if threads is not None else None,
        rss_bytes=threads.rss_bytes if threads is not None else None,
        gpu_time=on_gpu,
        torch_memory=session.torch_memory(pid),
        loaders=[_loader(each) for each in (with_work(view, pid, loaders) if is_in_focus else loaders)],
        checkpoints=session.checkpoints(pid),
        since_start=_since_start(session, stats) if stats is not None else None,
        state=row.state if row is not None else "restarted" if is_earlier else None,
        training=training,
    )


def _loader(row: LoaderRow) -> types.LoaderJson:
    facts, busy = row.facts, [worker.busy_ratio for worker in row.worker_rows if worker.busy_ratio is not None]
    return filled(
        types.LoaderJson,
        row,
        role=row.latest.role,
        facts=structs.replace(facts, item=None, collate=None),
        busy_ratio=fmean(busy) if busy and facts.workers else None,
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
        gc_s=totals.sums.gc_ns / 1e9 if totals.sums.gc_windows else None,
        timed_s=totals.timed_s,
        timed_counts=counts,
        last_step_unix_s=round(header.wall_unix_s + last_s - header.t) if header and last_s is not None else None,
    )


def _gpu(session: Session, row: GpuRow) -> types.GpuJson:
    latest = structs.replace(row.latest, pid=0, pids=[], processes=[])  # ids mean nothing on another node
    host = session.host_of(row.latest.pid)
    return filled(types.GpuJson, row, host=host, latest=latest, memory_ratio=latest.memory_ratio)


def _summary(ranks: Sequence[types.Rank]) -> types.RanksSummary:
    """Summary of all ranks: least, median and most of steps and step times, the median of each phase's share."""
    shares = {name: [rank.phase_shares[name] for rank in ranks if name in rank.phase_shares] for name in PHASES}
    return types.RanksSummary(
        count=len(ranks),
        steps=_spread([rank.steps.total for rank in ranks if rank.steps.total]),
        median_ms=_spread([rank.steps.median_ms for rank in ranks if rank.steps.median_ms is not None]),
        phases=[types.RankShare(name, median(known)) for name, known in shares.items() if known],
    )


def _spread(values: Sequence[float]) -> list[float] | None:
    return [min(values), median(values), max(values)] if values else None


def _trainings(session: Session) -> list[types.Training]:
    """The trainings in the order in which they began; empty if there is only one."""
    rows = training_rows(session)
    return [
        filled(
            types.Training,
            row,
            pid=own_id(row.first.pid),
            command=list(row.command),
            steps=_steps(session.over("whole").steps(row.first.pid)),
            findings=_findings(session, row.first.pid),
        )
        for row in rows[:_TRAININGS]
        if len(rows) > 1
    ]


def _findings(session: Session, pid: int) -> list[types.TrainingFinding]:
    """The findings on the training that a process belongs to, judged by itself."""
    chosen = session.chosen
    session.focus_on(pid)
    try:
        found = Verdicts(session).judge_run() if session.trainer() else []
    finally:
        session.focus_on(chosen)
    return [filled(types.TrainingFinding, finding, headline=headline_text(finding)) for finding in found[:_FINDINGS]]


def _standstill(past: Past, session: Session) -> types.StandstillJson:
    return types.StandstillJson(
        at_s=past.since_s - session.start_s,
        step=past.step,
        lasted_s=past.ended_s - past.since_s if past.ended_s is not None else None,
        taken_after_s=past.taken.quiet_s,
        text=standstill_line(past, session),
        groups=[msgspec.convert(group_json(group), types.StandingGroup) for group in standing(past.taken)],
        collectives=[
            filled(types.StuckCollective, one, elsewhere=[rank for rank, _ in one.elsewhere]) for one in past.stuck
        ],
    )


# -- charts


def page_of(
    session: Session, findings: Iterable[Finding], log: str = "", changes: Iterable[VerdictChange] = ()
) -> ReportPage:
    """The report over the whole run with what its page draws."""
    report = report_of(session, findings, log, changes)
    pid, view = session.trainer(), session.over("whole")
    places = [place for finding in report.findings for place in finding.where]
    used = (row for row in view.all_gpus() if row.used_by_run)
    return filled(
        ReportPage,
        report,
        mean_steps=list(_mean_steps(view, pid)),
        flames=list(_flames(view, pid)),
        courses={
            row.latest.uuid: {name: list(values) for name, values in row.course.items()}
            for row in islice(used, DRAWN_GPUS)
        },
        code={f"{at.file}:{at.line}": session.trie.lines_near(at.file, at.line, _AROUND) for at in places},
    )


def _mean_steps(view: SessionView, pid: int) -> Iterator[types.MeanStep]:
    """The course of the run up to its last step, in at most ``_BARS`` stretches of equal length."""
    start_s, between = view.session.start_s, view.between_parts(pid)
    stretches = view.session.step_stats[pid].stretches()
    together = -(-len(stretches) // _BARS)
    for at in range(0, len(stretches), together or 1):
        stretch = joined(stretches[at : at + together])
        yield types.MeanStep(
            stretch.begin_s - start_s, stretch.end_s - start_s, list(stretch.stacked_ms(between) or ())
        )


def _flames(view: SessionView, pid: int) -> Iterator[types.Flame]:
    """What the training thread does, and the DataLoader workers together; nothing without samples."""
    workers = [worker.pid for worker in view.workers(pid)]
    for title, pids in (("What the training thread does", [pid]), ("What the DataLoader workers do", workers)):
        tids = ((each, next(iter(view.sampled_tids(each)), None)) for each in pids)
        tree = Samples.joined(view.samples(*thread) for thread in tids).tree()
        if tree.samples:
            yield types.Flame(title, tree.samples, list(islice(_boxes(tree), _BOXES)))


def _boxes(tree: CallTree) -> Iterator[types.FlameBox]:
    """The functions that are wide enough to see."""
    waiting = deque([(tree.root, 0.0)])
    while waiting:
        parent, left = waiting.popleft()
        for node in parent.ordered():
            share, at = tree.share(node.total), node.place()
            if share >= _LEAST_SHARE and node.depth <= _DEPTH:
                place = at.function, at.file, at.line
                yield types.FlameBox(
                    node.depth - 1, left, share, *place, node.total, node.phase() or "other", node.user
                )
                waiting.append((node, left))
            left += share
