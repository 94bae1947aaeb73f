"""All metrics at one moment, and how a thread that wants them gets them from the one that folds records."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple, get_args

from tuimon.diagnosis.finding import Finding
from tuimon.records import BETWEEN, PHASES, length_bucket
from tuimon.session.gpus import GpuRow
from tuimon.session.loaders import LoaderRow
from tuimon.session.processes import LAST_MOMENT_S
from tuimon.session.progress import flops_rate, rates_in, run_progress
from tuimon.session.ranks import RankState, rank_rows
from tuimon.session.series import WINDOW_S
from tuimon.session.session import Session, SessionView
from tuimon.session.state import goodput
from tuimon.session.steps import StepStats, Totals
from tuimon.views.gpu_text import memory_ratio
from tuimon.views.metrics import table
from tuimon.views.metrics.table import Distribution, Metric, MetricSample, known, label_value

#: How long a scrape waits for a new snapshot before it gets the one before: the monitor ticks twice a second and more,
#: but may be stopped, or behind.
FRESH_S = 2.0
#: Most causes of throttling of one GPU: the driver knows eight.
_CAUSES = 8
#: Figures of the latest record that are exported as they are: metric, field, unit of the field in that of the metric.
_FIELDS: tuple[tuple[Metric, str, float], ...] = (
    (table.GPU_UTILIZATION, "util_ratio", 1.0),
    (table.GPU_MEMORY, "memory_used_bytes", 1.0),
    (table.GPU_MEMORY_LIMIT, "memory_total_bytes", 1.0),
    (table.GPU_POWER, "power_w", 1.0),
    (table.GPU_POWER_LIMIT, "power_limit_w", 1.0),
    (table.GPU_ENERGY, "energy_j", 1.0),
    (table.GPU_TEMPERATURE, "temperature_c", 1.0),
    (table.GPU_ERRORS, "ecc_errors", 1.0),
    (table.GPU_SM_CLOCK, "sm_clock_mhz", 1e6),
    (table.GPU_SM, "sm_ratio", 1.0),
    (table.GPU_OCCUPANCY, "occupancy_ratio", 1.0),
    (table.GPU_TENSOR, "tensor_ratio", 1.0),
    (table.GPU_DRAM, "dram_ratio", 1.0),
)
_TRAFFIC = (
    (table.GPU_PCIE, "receive", "pcie_rx_bytes_per_s"),
    (table.GPU_PCIE, "transmit", "pcie_tx_bytes_per_s"),
    (table.GPU_NVLINK, "receive", "nvlink_rx_bytes_per_s"),
    (table.GPU_NVLINK, "transmit", "nvlink_tx_bytes_per_s"),
)
#: The last bucket of the log's histogram that lies below each bound.
_LAST_BUCKETS = tuple(length_bucket(round(bound * 1e9)) for bound in table.STEP_BOUNDS)
#: Boundaries of the launch lead; a log may name others.
_BOUNDARIES = frozenset({"fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end"})


def rank_samples(session: Session, rank: str, pid: int) -> Iterator[MetricSample]:
    """All of one rank."""
    stats, now = session.step_stats.get(pid), session.over("recent")
    if stats is not None:
        yield from _step_samples(session, rank, stats)
    yield from _recent_samples(now, rank, pid)
    process, threads, saved = now.process(pid), now.process_threads(pid), session.checkpoints(pid)
    if process is not None:
        yield MetricSample(table.MARKERS, (rank,), float(process.markers))
    if threads is not None:
        yield from known(table.PROCESS_CPU, (rank,), threads.cpu_ratio)
        yield from known(table.PROCESS_MEMORY, (rank,), threads.rss_bytes)
    yield from _gpu_samples(now, rank, pid)
    yield from _loader_samples(now, rank, pid)
    if saved is not None:
        yield from known(table.CHECKPOINTS, (rank,), saved.number)
        yield MetricSample(table.CHECKPOINT_SIZE, (rank,), saved.size_bytes)
        yield MetricSample(table.CHECKPOINT_TIME, (rank,), saved.seconds)
        if saved.file_system:
            yield MetricSample(table.CHECKPOINT_INFO, (rank, label_value(saved.file_system)), 1)


def distribution(totals: Totals) -> Distribution:
    """The histogram of the log, 1 % wide buckets, as counts between the bounds of the table."""
    counts = [0] * (len(_LAST_BUCKETS) + 1)
    for bucket, steps in totals.histogram.items():
        counts[bisect_left(_LAST_BUCKETS, bucket)] += steps
    return Distribution(tuple(counts), totals.timed_s)


def _step_samples(session: Session, rank: str, stats: StepStats) -> Iterator[MetricSample]:
    totals = stats.since_start()
    yield MetricSample(table.STEPS, (rank,), stats.total)
    yield MetricSample(table.STEP, (rank,), distribution(totals))
    for phase in (*PHASES, BETWEEN):
        if phase in totals.sums.phases_ns:
            yield MetricSample(table.PHASE_TIME, (rank, phase), totals.sums.phases_ns[phase] / 1e9)
    yield MetricSample(table.EVALUATIONS, (rank,), totals.sums.eval_count)
    yield MetricSample(table.MARKERS_DROPPED, (rank,), stats.dropped)
    if totals.sums.gc_windows:
        yield MetricSample(table.GC, (rank,), totals.sums.gc_ns / 1e9)
    if stats.last_step_s is not None and session.header is not None:
        yield MetricSample(table.LAST_STEP, (rank,), session.header.wall_unix_s + stats.last_step_s - session.header.t)


def _recent_samples(now: SessionView, rank: str, pid: int) -> Iterator[MetricSample]:
    steps = now.steps(pid)
    if steps is not None:
        for statistic, ms in (("median", steps.median_ms), ("p95", steps.p95_ms)):
            yield from known(table.STEP_RECENT, (rank, statistic), ms, 1e-3)
    rates, flops, progress = rates_in(now, pid), flops_rate(now.session, pid), run_progress(now.session, pid)
    yield from known(table.SAMPLES_RATE, (rank,), rates.samples)
    yield from known(table.TOKENS_RATE, (rank,), rates.tokens)
    if flops is not None:
        yield from known(table.FLOPS_RATE, (rank,), flops.per_s)
        yield from known(table.MFU, (rank,), flops.mfu_ratio)
    if progress.left is not None and progress.left.of == "run":
        yield MetricSample(table.TIME_LEFT, (rank,), progress.left.seconds)
    phases = now.phases(pid)
    if phases is not None:
        for row in phases.rows:
            yield MetricSample(table.PHASE_SHARE, (rank, row.name), row.share)
            if row.estimated:
                yield from known(table.PHASE_ERROR, (rank, row.name), row.error)


def _gpu_samples(now: SessionView, rank: str, pid: int) -> Iterator[MetricSample]:
    on_gpu = now.gpu_time(pid)
    if on_gpu is not None:
        for lead in on_gpu.leads:
            if lead.boundary in _BOUNDARIES:
                yield from known(table.LEAD, (rank, lead.boundary), lead.median_us, 1e-6)
        yield MetricSample(table.GPU_IDLE, (rank, "at_least"), on_gpu.idle_ratio)
        if on_gpu.bounded:
            yield MetricSample(table.GPU_IDLE, (rank, "at_most"), on_gpu.idle_ratio + on_gpu.maybe_idle_ratio)
    for row in now.session.torch_memory(pid):
        device = str(row.device)
        yield from known(table.TORCH_ALLOCATED, (rank, device), row.allocated_bytes)
        yield from known(table.TORCH_RESERVED, (rank, device), row.reserved_bytes)


def _loader_samples(now: SessionView, rank: str, pid: int) -> Iterator[MetricSample]:
    """All of one rank. A loader's number is no label: a program may make a new one for every epoch."""
    latest: dict[str, LoaderRow] = {}
    for row in now.loaders(pid):
        role: str = row.latest.role or "unknown"
        if role not in latest or row.idle_s < latest[role].idle_s:
            latest[role] = row
    for role, row in latest.items():
        labels, busy = (rank, role), [w.busy_ratio for w in row.worker_rows if w.busy_ratio is not None]
        yield MetricSample(table.LOADER_WORKERS, labels, row.facts.workers)
        if busy and row.facts.workers:
            yield MetricSample(table.LOADER_BUSY, labels, sum(busy) / len(busy))
        yield from known(table.LOADER_READY, labels, row.ready_mean)
        yield from known(table.LOADER_NONE_READY, labels, row.ready_none_ratio)
        yield from known(table.LOADER_WAIT, labels, row.wait_ms, 1e-3)


def rank_group_samples(session: Session, labels: Mapping[int, str]) -> Iterator[MetricSample]:
    """Samples of the training in focus; none of a single rank. ``labels``: those of the ranks, by pid."""
    rows = rank_rows(session.over("recent"))
    for state in get_args(RankState) if rows else ():
        yield MetricSample(table.RANK_STATES, (state,), sum(1 for row in rows if row.state == state))
    for row in rows:
        if row.pid in labels:
            rank = (labels[row.pid],)
            yield MetricSample(table.RANK_BEHIND, rank, row.behind)
            yield MetricSample(table.RANK_RESTARTS, rank, row.restarts)
            yield from known(table.RANK_WAIT, rank, row.wait_ratio)
            yield from known(table.RANK_LATE, rank, row.late_ratio)


class Snapshot(NamedTuple):
    """Immutable: what a scrape shows is of one moment, however long it takes."""

    families: tuple[tuple[Metric, tuple[MetricSample, ...]], ...]  # each metric that has samples, once


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
    samples: dict[str, list[MetricSample]] = {}
    for sample in _samples(session, findings, ranks):
        samples.setdefault(sample.metric.name, []).append(sample)
    return Snapshot(tuple((rows[0].metric, tuple(rows)) for rows in samples.values()))


def _samples(session: Session, findings: Sequence[Finding], ranks: RankLabels) -> Iterator[MetricSample]:
    labelled = ranks.of(session)
    ended = session.exit is not None
    yield from _run_samples(session, 0 if ended else len(labelled))
    for rank, pid in labelled:
        yield from rank_samples(session, rank, pid)
    yield from rank_group_samples(session, {pid: rank for rank, pid in labelled})
    yield from gpu_samples(session)
    # of a rule that is listed twice, the first
    for finding in {found.rule: found for found in reversed(findings)}.values():
        yield MetricSample(table.FINDING, (finding.rule, finding.severity), 1)
        yield from known(table.FINDING_SHARE, (finding.rule,), finding.share_of_step)
        yield from known(table.FINDING_SPEEDUP, (finding.rule,), finding.estimated_speedup)
    if session.cost is not None:
        yield MetricSample(table.MONITOR_CPU, (), session.cost.cpu_ratio)
        yield MetricSample(table.MONITOR_MEMORY, (), session.cost.rss_bytes)
        yield MetricSample(table.MONITOR_DROPPED, (), session.cost.queue_dropped)


class RankLabels:
    """Hands out labels. A rank that is started again takes over the label of the one that has ended.

    A process without a rank gets the lowest free number: alone it is rank 0. If two have the same rank, as two
    trainings in one command do, the second is ``0.1``.
    """

    def __init__(self) -> None:
        self._labels: dict[int, str] = {}

    def of(self, session: Session) -> list[tuple[str, int]]:
        """(label, pid) of the training processes that are alive, or, when none is left, that ended last."""
        pids = _shown(session)
        self._labels = {pid: label for pid, label in self._labels.items() if pid in pids}
        for pid in pids:
            if pid not in self._labels:
                process = session.process(pid)
                self._labels[pid] = _free(process.rank if process is not None else None, set(self._labels.values()))
        return [(self._labels[pid], pid) for pid in pids]


def _shown(session: Session) -> list[int]:
    trainers = session.trainers()
    ended_s = {pid: process.t for pid in trainers if (process := session.process(pid)) is not None and process.ended}
    live = [pid for pid in trainers if pid not in ended_s]
    if live or not ended_s:
        return live
    last_s = max(ended_s.values())
    return [pid for pid in trainers if ended_s[pid] >= last_s - LAST_MOMENT_S]


def _free(rank: int | None, taken: Container[str]) -> str:
    if rank is not None and str(rank) not in taken:
        return str(rank)
    names = (str(number) if rank is None else f"{rank}.{number}" for number in count(0 if rank is None else 1))
    return next(name for name in names if name not in taken)


def _run_samples(session: Session, ranks: int) -> Iterator[MetricSample]:
    """Facts of the run, and how it ended."""
    header = session.header
    if header is not None:
        texts = (header.run or "", header.host, header.mode, header.versions.get("tuimon", ""))
        yield MetricSample(table.RUN_INFO, tuple(map(label_value, texts)), 1)
        yield MetricSample(table.RUN_START, (), header.wall_unix_s)
    if (divided := goodput(session)) is not None:
        for part, seconds in divided.parts.items():
            yield MetricSample(table.WALL_TIME, (part,), seconds)
    yield MetricSample(table.RANKS, (), ranks)
    if session.exit is not None:
        yield from known(table.RUN_EXIT, (), session.exit.exit_code)


def gpu_samples(session: Session) -> Iterator[MetricSample]:
    """All GPUs and MIG instances, on all nodes of the run, that the driver has reported in the last 30 s."""
    for node in sorted(session.nodes.known) or [session.focus_node]:
        for row in session.over("recent").gpus(node):
            if row.stale_s <= WINDOW_S:
                yield from _gpu_row_samples(row)


def _gpu_row_samples(row: GpuRow) -> Iterator[MetricSample]:
    gpu = row.latest
    labels = (label_value(gpu.uuid), str(gpu.index))
    yield MetricSample(table.GPU_INFO, (*labels, label_value(gpu.name)), 1)
    yield MetricSample(table.GPU_USED, labels, float(row.used_by_run))
    for metric, field, unit in _FIELDS:
        yield from known(metric, labels, getattr(gpu, field), unit)
    yield from known(table.GPU_MEMORY_SHARE, labels, memory_ratio(gpu))
    for metric, direction, field in _TRAFFIC:
        yield from known(metric, (*labels, direction), getattr(gpu, field))
    for cause, ratio in row.throttled[:_CAUSES]:
        yield MetricSample(table.GPU_THROTTLED, (*labels, label_value(cause)), ratio)
    yield from known(table.GPU_STEP_ENERGY, labels, row.joules_per_step)
