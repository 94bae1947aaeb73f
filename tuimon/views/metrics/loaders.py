"""Metrics of the DataLoaders of one training process: of each role the one that was used last."""

from __future__ import annotations

from collections.abc import Iterator

from tuimon.session.rows import LoaderRow
from tuimon.session.session import Session
from tuimon.views.metrics import table
from tuimon.views.metrics.metric import Sample, known


def loader_samples(session: Session, rank: str, pid: int) -> Iterator[Sample]:
    """All of one rank. A loader's number is no label: a program may make a new one for every epoch."""
    latest: dict[str, LoaderRow] = {}
    for row in session.loader_figures(pid):
        role: str = row.latest.role or "unknown"
        if role not in latest or row.idle_s < latest[role].idle_s:
            latest[role] = row
    for role, row in latest.items():
        yield from _row_samples((rank, role), row)


def _row_samples(labels: tuple[str, str], row: LoaderRow) -> Iterator[Sample]:
    busy = [worker.busy_ratio for worker in row.worker_rows if worker.busy_ratio is not None]
    yield Sample(table.LOADER_WORKERS, labels, row.facts.workers)
    if busy and row.facts.workers:
        yield Sample(table.LOADER_BUSY, labels, sum(busy) / len(busy))
    yield from known(table.LOADER_READY, labels, row.ready_mean)
    yield from known(table.LOADER_NONE_READY, labels, row.ready_none_ratio)
    yield from known(table.LOADER_WAIT, labels, row.wait_ms, 1e-3)
