"""The CPU of DataLoader workers beside the time in which they make batches: an item that waits uses none."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from tuimon.session.rows import LoaderRow, LoaderWorkerRow
from tuimon.session.session import SessionView


def with_cpu(now: SessionView, loaders: Iterable[LoaderRow]) -> list[LoaderRow]:
    """The loaders with the CPU of each worker, 1.0 for one core."""
    return [_with_cpu(now, row) if row.facts.workers else row for row in loaders]


def _with_cpu(now: SessionView, row: LoaderRow) -> LoaderRow:
    return row._replace(worker_rows=tuple(_of(now, each) for each in row.worker_rows))


def _of(now: SessionView, worker: LoaderWorkerRow) -> LoaderWorkerRow:
    threads = now.process_threads(worker.pid)
    return structs.replace(worker, cpu_ratio=threads.cpu_ratio if threads is not None else None)
