"""The work of DataLoader workers beside the time in which they make batches: an item that waits uses no CPU."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from tuimon.session.rows import LoaderRow, LoaderWorkerRow
from tuimon.session.session import SessionView


def with_work(now: SessionView, pid: int, loaders: Iterable[LoaderRow]) -> list[LoaderRow]:
    """The loaders of a process with the hottest line of each worker, and its CPU, 1.0 for one core."""

    def of(worker: LoaderWorkerRow) -> LoaderWorkerRow:
        threads = now.process_threads(worker.pid) if worker.pid != pid else None
        cpu_ratio = threads.cpu_ratio if threads is not None else None
        return structs.replace(worker, cpu_ratio=cpu_ratio, hot=now.hottest_in_worker(pid, worker.pid))

    return [row._replace(worker_rows=tuple(of(worker) for worker in row.worker_rows)) for row in loaders]
