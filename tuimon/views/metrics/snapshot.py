"""All metrics at one moment, and their way from the thread that folds records to those that serve them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, count
from typing import TypeAlias, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from tuimon.diagnosis.finding import Finding
from tuimon.session.processes import LAST_MOMENT_S
from tuimon.session.ranks import RankState
from tuimon.session.session import Session
from tuimon.views.metrics.table import GPU, METRICS, RANK, Metric
from tuimon.views.report.report import Parts, parts_of
from tuimon.views.report_types import STEP_BOUNDS, Rank, SinceStart

#: Seconds that a scrape waits for a new snapshot before it gets the previous one: the monitor ticks at least twice a
#: second, but may be stopped, or behind.
FRESH_S = 2.0
#: Most causes of throttling of one GPU: the driver knows eight.
_CAUSES = 8
#: Upper bounds of the histogram of steps, as Prometheus writes them.
_BOUNDS = (*map(str, STEP_BOUNDS), "+Inf")
#: Longest label value, in characters: names of GPUs take about 40, UUIDs of MIG instances 100.
_LONGEST_VALUE = 128
#: Unit at the end of a field's name -> factor to Prometheus's unit.
_UNITS = {"ms": 1e-3, "us": 1e-6, "mhz": 1e6}
#: Label names -> the rows of a report that have these labels, each with its label values.
_Rows = dict[tuple[str, ...], list[tuple[tuple[str, ...], object]]]


Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
#: The metrics with samples at one moment; later moments do not change it.
Snapshot = tuple[Family, ...]


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
        """A snapshot taken after this call; if none comes in time, the latest. None before the first."""
        with self._changed:
            if not self._closed:
                before, self._wanted = self._latest, True
                self._changed.wait_for(lambda: self._latest is not before or self._closed, timeout_s)
            return self._latest


def take(session: Session, findings: Sequence[Finding], labels: RankLabels) -> Snapshot:
    """All metrics with a known value now."""
    rows = _rows(parts_of(session.over("recent")), findings, labels)
    return tuple(family for metric in METRICS if (family := _family(metric, rows)).samples)


def _family(metric: Metric, rows: _Rows) -> Family:
    """A sample for each row that has the value; if rows lack the last label, one for each value of that label."""
    make = {"counter": CounterMetricFamily, "histogram": HistogramMetricFamily}.get(metric.kind, GaugeMetricFamily)
    family: Family = make(metric.name.removesuffix("_total"), metric.help, labels=metric.all_labels)
    constants = [value for _, value in metric.constants]
    of_each = isinstance(metric.of, Mapping) or metric.labels not in rows
    for labels, row in rows[metric.labels[:-1] if of_each else metric.labels]:
        values: Mapping[str, object]
        if isinstance(metric.of, Mapping):
            values = {label: _value(row, path) for label, path in metric.of.items()}
        else:
            value = _value(row, metric.of)
            values = value if isinstance(value, dict) else {"": value}
        for label, value in values.items():
            bounded = [text[:_LONGEST_VALUE] for text in ((*labels, label) if of_each else labels)] + constants
            if isinstance(value, SinceStart):
                buckets = list(zip(_BOUNDS, accumulate(value.timed_counts), strict=True))
                family.add_metric(bounded, buckets, value.timed_s)
            elif isinstance(value, int | float):
                family.add_metric(bounded, float(value))
    return family


def _value(row: object, path: str) -> object:
    """The attribute at the end of the path, in Prometheus's unit; None if an attribute on the way is None."""
    for name in path.split(".") if path else ():
        row = getattr(row, name, None)
    unit = _UNITS.get(path.rpartition("_")[2], 1.0)
    return row * unit if isinstance(row, int | float) else row


def _rows(now: Parts, findings: Sequence[Finding], labels: RankLabels) -> _Rows:
    run, ranks = now.run, labels.of(now.ranks)
    fresh = {row.latest.uuid for row in now.view.all_gpus() if not row.is_old}  # whose driver answers
    gpus = [((gpu.latest.uuid, str(gpu.latest.index)), gpu) for gpu in now.gpus if gpu.latest.uuid in fresh]
    states = Counter(rank.state for rank in now.ranks)
    about = (run.name or "", run.host or "", run.mode or "", run.versions.get("tuimon", ""))
    found = {finding.rule: finding for finding in reversed(findings)}  # the first finding of each rule
    return {
        (): [((), now)],
        ("run", "host", "mode", "version"): [(about, 1)] if run.host is not None else [],
        ("part",): [((part.name,), part) for part in (now.goodput.parts if now.goodput is not None else ())],
        RANK: [((label,), rank) for label, rank in ranks],
        (*RANK, "file_system"): [
            ((label, rank.checkpoints.file_system), 1)
            for label, rank in ranks
            if rank.checkpoints is not None and rank.checkpoints.file_system
        ],
        (*RANK, "boundary"): [
            ((label, lead.boundary), lead)
            for label, rank in ranks
            for lead in (rank.gpu_time.leads if rank.gpu_time is not None else ())
        ],
        (*RANK, "device"): [((label, str(row.device)), row) for label, rank in ranks for row in rank.torch_memory],
        # a loader's number is no label: a program may make a new one for every epoch
        (*RANK, "role"): [
            ((label, role), loader)
            for label, rank in ranks
            for role, loader in {
                each.role or "unknown": each for each in sorted(rank.loaders, key=lambda each: -each.idle_s)
            }.items()
        ],
        ("state",): [((state,), states[state]) for state in get_args(RankState) if any(states[s] for s in states if s)],
        GPU: list(gpus),
        (*GPU, "model"): [((*labels, gpu.latest.name), 1) for labels, gpu in gpus],
        (*GPU, "cause"): [
            ((*labels, cause), ratio) for labels, gpu in gpus for cause, ratio in gpu.throttled[:_CAUSES]
        ],
        ("rule",): [((rule,), finding) for rule, finding in found.items()],
        ("rule", "severity"): [((rule, finding.severity), 1) for rule, finding in found.items()],
    }


class RankLabels:
    """Hands out labels. A rank that is started again takes over the label of its ended process.

    A process without a rank gets the lowest free number: alone it is rank 0. If two have the same rank, as two
    trainings in one command do, the second is ``0.1``.
    """

    def __init__(self) -> None:
        self._labels: dict[tuple[str | None, int], str] = {}  # by host and pid

    def of(self, ranks: Sequence[Rank]) -> list[tuple[str, Rank]]:
        """The training processes that are alive with their labels; when none is left, those that ended last."""
        last_s = max((rank.ended_s or 0.0 for rank in ranks), default=0.0) - LAST_MOMENT_S
        live = [rank for rank in ranks if rank.ended_s is None]
        shown = {(rank.host, rank.pid): rank for rank in live or ranks if not rank.ended_s or rank.ended_s >= last_s}
        self._labels = {key: label for key, label in self._labels.items() if key in shown}
        for key, rank in shown.items():
            if key not in self._labels:
                taken, own = set(self._labels.values()), rank.rank
                names = map(str, count()) if own is None else (f"{own}.{n}" if n else str(own) for n in count())
                self._labels[key] = next(name for name in names if name not in taken)
        return [(self._labels[key], rank) for key, rank in shown.items()]
