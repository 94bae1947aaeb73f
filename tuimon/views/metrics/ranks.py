"""Metrics of the training processes, one by one and compared: steps, phases, DataLoaders, CPU, memory, GPU time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import get_args

from tuimon.records import BETWEEN, PHASES, length_bucket
from tuimon.session.progress import flops_rate, rates_in, run_progress
from tuimon.session.ranks import RankState, rank_rows
from tuimon.session.rows import LoaderRow
from tuimon.session.session import Session, SessionView
from tuimon.session.step_sums import Totals
from tuimon.session.steps import StepStats
from tuimon.views.metrics import table
from tuimon.views.metrics.metric import Distribution, Sample, known, label_value

#: The last bucket of the log's histogram that lies below each bound.
_LAST_BUCKETS = tuple(length_bucket(round(bound * 1e9)) for bound in table.STEP_BOUNDS)
#: Boundaries of the launch lead; a log may name others.
_BOUNDARIES = frozenset({"fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end"})


def rank_samples(session: Session, rank: str, pid: int) -> Iterator[Sample]:
    """All of one rank."""
    stats, now = session.step_stats.get(pid), session.over("recent")
    if stats is not None:
        yield from _step_samples(session, rank, stats)
    yield from _recent_samples(now, rank, pid)
    yield from _process_samples(now, rank, pid)
    yield from _gpu_samples(now, rank, pid)
    yield from _loader_samples(now, rank, pid)
    yield from _checkpoint_samples(session, rank, pid)


def distribution(totals: Totals) -> Distribution:
    """The histogram of the log, 1 % wide buckets, as counts between the bounds of the table."""
    counts = [0] * (len(_LAST_BUCKETS) + 1)
    for bucket, steps in totals.histogram.items():
        counts[bisect_left(_LAST_BUCKETS, bucket)] += steps
    return Distribution(tuple(counts), totals.timed_s)


def _step_samples(session: Session, rank: str, stats: StepStats) -> Iterator[Sample]:
    totals = stats.since_start()
    yield Sample(table.STEPS, (rank,), stats.total)
    yield Sample(table.STEP, (rank,), distribution(totals))
    for phase in (*PHASES, BETWEEN):
        if phase in totals.sums.phases_ns:
            yield Sample(table.PHASE_TIME, (rank, phase), totals.sums.phases_ns[phase] / 1e9)
    yield Sample(table.EVALUATIONS, (rank,), totals.sums.eval_count)
    yield Sample(table.MARKERS_DROPPED, (rank,), stats.dropped)
    if totals.sums.gc_windows:
        yield Sample(table.GC, (rank,), totals.sums.gc_ns / 1e9)
    if stats.last_step_s is not None and session.header is not None:
        yield Sample(table.LAST_STEP, (rank,), session.header.wall_unix_s + stats.last_step_s - session.header.t)


def _checkpoint_samples(session: Session, rank: str, pid: int) -> Iterator[Sample]:
    saved = session.checkpoints(pid)
    if saved is None:
        return
    yield from known(table.CHECKPOINTS, (rank,), saved.number)
    yield Sample(table.CHECKPOINT_SIZE, (rank,), saved.size_bytes)
    yield Sample(table.CHECKPOINT_TIME, (rank,), saved.seconds)
    if saved.file_system:
        yield Sample(table.CHECKPOINT_INFO, (rank, label_value(saved.file_system)), 1)


def _recent_samples(now: SessionView, rank: str, pid: int) -> Iterator[Sample]:
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
        yield Sample(table.TIME_LEFT, (rank,), progress.left.seconds)
    phases = now.phases(pid)
    if phases is not None:
        for row in phases.rows:
            yield Sample(table.PHASE_SHARE, (rank, row.name), row.share)
            if row.estimated:
                yield from known(table.PHASE_ERROR, (rank, row.name), row.error)


def _process_samples(now: SessionView, rank: str, pid: int) -> Iterator[Sample]:
    process, threads = now.process(pid), now.process_threads(pid)
    if process is not None:
        yield Sample(table.MARKERS, (rank,), float(process.markers))
    if threads is not None:
        yield from known(table.PROCESS_CPU, (rank,), threads.cpu_ratio)
        yield from known(table.PROCESS_MEMORY, (rank,), threads.rss_bytes)


def _gpu_samples(now: SessionView, rank: str, pid: int) -> Iterator[Sample]:
    on_gpu = now.gpu_time(pid)
    if on_gpu is not None:
        for lead in on_gpu.leads:
            if lead.boundary in _BOUNDARIES:
                yield from known(table.LEAD, (rank, lead.boundary), lead.median_us, 1e-6)
        yield Sample(table.GPU_IDLE, (rank, "at_least"), on_gpu.idle_ratio)
        if on_gpu.bounded:
            yield Sample(table.GPU_IDLE, (rank, "at_most"), on_gpu.idle_ratio + on_gpu.maybe_idle_ratio)
    for row in now.session.torch_memory(pid):
        device = str(row.device)
        yield from known(table.TORCH_ALLOCATED, (rank, device), row.allocated_bytes)
        yield from known(table.TORCH_RESERVED, (rank, device), row.reserved_bytes)


def _loader_samples(now: SessionView, rank: str, pid: int) -> Iterator[Sample]:
    """All of one rank. A loader's number is no label: a program may make a new one for every epoch."""
    latest: dict[str, LoaderRow] = {}
    for row in now.loaders(pid):
        role: str = row.latest.role or "unknown"
        if role not in latest or row.idle_s < latest[role].idle_s:
            latest[role] = row
    for role, row in latest.items():
        yield from _loader_row_samples((rank, role), row)


def _loader_row_samples(labels: tuple[str, str], row: LoaderRow) -> Iterator[Sample]:
    busy = [worker.busy_ratio for worker in row.worker_rows if worker.busy_ratio is not None]
    yield Sample(table.LOADER_WORKERS, labels, row.facts.workers)
    if busy and row.facts.workers:
        yield Sample(table.LOADER_BUSY, labels, sum(busy) / len(busy))
    yield from known(table.LOADER_READY, labels, row.ready_mean)
    yield from known(table.LOADER_NONE_READY, labels, row.ready_none_ratio)
    yield from known(table.LOADER_WAIT, labels, row.wait_ms, 1e-3)


def rank_group_samples(session: Session, labels: Mapping[int, str]) -> Iterator[Sample]:
    """Samples of the training in focus; none of a single rank. ``labels``: those of the ranks, by pid."""
    rows = rank_rows(session.over("recent"))
    for state in get_args(RankState) if rows else ():
        yield Sample(table.RANK_STATES, (state,), sum(1 for row in rows if row.state == state))
    for row in rows:
        if row.pid in labels:
            rank = (labels[row.pid],)
            yield Sample(table.RANK_BEHIND, rank, row.behind)
            yield Sample(table.RANK_RESTARTS, rank, row.restarts)
            yield from known(table.RANK_WAIT, rank, row.wait_ratio)
            yield from known(table.RANK_LATE, rank, row.late_ratio)
