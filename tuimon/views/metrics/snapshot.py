"""All metrics at one moment, and how a thread that wants them gets them from the one that folds records."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tuimon.diagnosis.finding import Finding
from tuimon.session.session import Session
from tuimon.views.metrics.gpus import gpu_samples
from tuimon.views.metrics.loaders import loader_samples
from tuimon.views.metrics.metric import Metric, Sample
from tuimon.views.metrics.rank_group import rank_group_samples
from tuimon.views.metrics.rank_labels import RankLabels
from tuimon.views.metrics.ranks import rank_samples
from tuimon.views.metrics.run import finding_samples, monitor_samples, run_samples

#: How long a scrape waits for a new snapshot before it gets the one before: the monitor ticks twice a second and more,
#: but may be stopped, or behind.
FRESH_S = 2.0


class Snapshot(NamedTuple):
    """Immutable: what a scrape shows is of one moment, however long it takes."""

    families: tuple[tuple[Metric, tuple[Sample, ...]], ...]  # each metric that has samples, once
    unix_ns: int
    start_unix_ns: int
    host: str = ""
    run: str = ""


class Snapshots:
    """Hands the latest snapshot from the monitor's thread to others.

    A snapshot is taken when somebody waits for one: without a scrape the metrics cost nothing.
    """

    def __init__(self) -> None:
        self._ranks = RankLabels()
        self._changed = threading.Condition()
        self._wanted = False
        self._latest: Snapshot | None = None
        self._closed = False

    def offer(self, session: Session, findings: Sequence[Finding], *, last: bool = False) -> None:
        """Take a snapshot if one is wanted, or if it is the last; from the monitor's thread."""
        if not self._wanted and not last:
            return
        snapshot = take(session, findings, self._ranks)
        with self._changed:
            self._latest, self._wanted, self._closed = snapshot, False, last
            self._changed.notify_all()

    def fresh(self, timeout_s: float = FRESH_S) -> Snapshot | None:
        """A snapshot taken from now on; where none comes in time, the latest. None before the first."""
        with self._changed:
            if not self._closed:
                before, self._wanted = self._latest, True
                self._changed.wait_for(lambda: self._latest is not before or self._closed, timeout_s)
            return self._latest


def take(session: Session, findings: Sequence[Finding], ranks: RankLabels) -> Snapshot:
    """All metrics that are known now."""
    samples: dict[str, list[Sample]] = {}
    for sample in _samples(session, findings, ranks):
        samples.setdefault(sample.metric.name, []).append(sample)
    families = tuple((rows[0].metric, tuple(rows)) for rows in samples.values())
    header, now_ns = session.header, time.time_ns()
    if header is None:
        return Snapshot(families, now_ns, now_ns)
    return Snapshot(families, now_ns, int(header.wall_unix_s * 1e9), header.host, header.run or "")


def _samples(session: Session, findings: Sequence[Finding], ranks: RankLabels) -> Iterator[Sample]:
    labelled = ranks.of(session)
    ended = session.exit is not None
    yield from run_samples(session, 0 if ended else len(labelled))
    for rank, pid in labelled:
        yield from rank_samples(session, rank, pid)
        yield from loader_samples(session, rank, pid)
    yield from rank_group_samples(session, {pid: rank for rank, pid in labelled})
    yield from gpu_samples(session)
    yield from finding_samples(findings)
    yield from monitor_samples(session)
