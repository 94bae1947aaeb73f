"""The report of a session, built once for all its forms."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from statistics import median

from msgspec import structs

from tuimon.diagnosis.finding import Finding, FindingJson, VerdictChange
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.node_ids import own_id
from tuimon.records import PHASES
from tuimon.session.ranks import training_rows
from tuimon.session.session import ProcessView, Session
from tuimon.session.stacks.call_tree import CallTree
from tuimon.session.stacks.samples import Samples
from tuimon.session.steps import joined
from tuimon.views import report_types as types
from tuimon.views.finding_text import headline_text
from tuimon.views.report.parts import Parts, marked, parts_of
from tuimon.views.report.sentences import summary_of
from tuimon.views.report_types import Report, ReportPage, filled

#: With more ranks than this, the report has a summary of them.
FEW = 16
#: Most trainings that are listed, and most findings of each.
_TRAININGS, _FINDINGS = 16, 3
#: Most GPUs whose counters are drawn.
DRAWN_GPUS = 16
#: Most stretches of the chart of steps: the page of a long run stays small.
_BARS = 240
#: Share of all samples from which a function is in a graph; its most callers; most functions of a graph.
_LEAST_SHARE, _DEPTH, _BOXES = 0.004, 32, 1500
#: Lines of code before and after that of a finding.
_AROUND = 3


def report_of(
    session: Session, findings: Iterable[Finding], log: str = "", changes: Iterable[VerdictChange] = ()
) -> Report:
    """The report over the whole run."""
    trainings = _trainings(session)  # first: views do not outlive a change of the focus
    parts = parts_of(session.over("whole"))
    report = Report(
        schema=1,
        summary="",
        trainings=trainings,
        findings=[FindingJson.of(finding) for finding in findings],
        changes=list(changes),
        **{name: getattr(parts, name) for name in Report.__struct_fields__ if hasattr(Parts, name)},
    )
    report.run = structs.replace(parts.run, log=log)
    if len(trainers := session.trainers()) > FEW:
        report.ranks_summary = _summary([rank for rank in report.ranks if rank.pid in map(own_id, trainers)])
    report.summary = summary_of(report)
    return report


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
            steps=marked(session.over("whole").of(row.first.pid).steps),
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


# -- charts


def page_of(
    session: Session, findings: Iterable[Finding], log: str = "", changes: Iterable[VerdictChange] = ()
) -> ReportPage:
    """The report over the whole run with what its page draws."""
    report = report_of(session, findings, log, changes)
    view = session.over("whole")
    places = [place for finding in report.findings for place in finding.where]
    used = (row for row in view.all_gpus() if row.used_by_run)
    return filled(
        ReportPage,
        report,
        mean_steps=list(_mean_steps(view.focus)),
        flames=list(_flames(view.focus)),
        courses={
            row.latest.uuid: {name: list(values) for name, values in row.course.items()}
            for row in islice(used, DRAWN_GPUS)
        },
        code={f"{at.file}:{at.line}": session.trie.lines_near(at.file, at.line, _AROUND) for at in places},
    )


def _mean_steps(own: ProcessView) -> Iterator[types.MeanStep]:
    """The course of the run up to its last step, in at most ``_BARS`` stretches of equal length."""
    start_s, between = own.view.session.start_s, own.split.parts
    stretches = own.stats.stretches()
    together = -(-len(stretches) // _BARS)
    for at in range(0, len(stretches), together or 1):
        stretch = joined(stretches[at : at + together])
        yield types.MeanStep(
            stretch.begin_s - start_s, stretch.end_s - start_s, list(stretch.stacked_ms(between) or ())
        )


def _flames(own: ProcessView) -> Iterator[types.Flame]:
    """What the training thread does, and the DataLoader workers together; nothing without samples."""
    workers = [own.view.of(worker.pid) for worker in own.workers]
    for title, of in (("What the training thread does", [own]), ("What the DataLoader workers do", workers)):
        tree = Samples.joined(each.samples for each in of).tree()
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
