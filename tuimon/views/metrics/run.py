"""Metrics of the run as a whole: what it is, what the rules find, what tuimon itself uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuimon.diagnosis.finding import Finding
from tuimon.session.session import Session
from tuimon.views.metrics import table
from tuimon.views.metrics.metric import Sample, known, label_value


def run_samples(session: Session, ranks: int) -> Iterator[Sample]:
    """Facts of the run, and how it ended."""
    header = session.header
    if header is not None:
        texts = (header.run or "", header.host, header.mode, header.versions.get("tuimon", ""))
        yield Sample(table.RUN_INFO, tuple(map(label_value, texts)), 1)
        yield Sample(table.RUN_START, (), header.wall_unix_s)
    yield Sample(table.RANKS, (), ranks)
    if session.exit is not None:
        yield from known(table.RUN_EXIT, (), session.exit.exit_code)


def finding_samples(findings: Sequence[Finding]) -> Iterator[Sample]:
    """The findings of this moment; of a rule that is listed twice, the first."""
    for finding in {found.rule: found for found in reversed(findings)}.values():
        yield Sample(table.FINDING, (finding.rule, finding.severity), 1)
        yield from known(table.FINDING_SHARE, (finding.rule,), finding.share_of_step)
        yield from known(table.FINDING_SPEEDUP, (finding.rule,), finding.estimated_speedup)


def monitor_samples(session: Session) -> Iterator[Sample]:
    """The resources that tuimon itself uses, and the records that it has lost."""
    if session.cost is not None:
        yield Sample(table.MONITOR_CPU, (), session.cost.cpu_ratio)
        yield Sample(table.MONITOR_MEMORY, (), session.cost.rss_bytes)
        yield Sample(table.MONITOR_DROPPED, (), session.cost.queue_dropped)
