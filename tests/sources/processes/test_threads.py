"""The threads of a process: those that sleep on are read in turns."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from tuimon.proc import procfs
from tuimon.sources.processes.threads import ThreadMeter

pytestmark = pytest.mark.trust

COUNT = 64
READS = 16


@pytest.fixture
def waiting() -> Iterator[list[tuple[threading.Thread, threading.Event]]]:
    """Threads that sleep until their event, use 0.2 s of CPU, and sleep on."""
    over = threading.Event()

    def wait(event: threading.Event) -> None:
        event.wait()
        while not over.is_set() and time.thread_time() < 0.2:
            pass
        over.wait()

    found = [(threading.Thread(target=wait, args=(event,), daemon=True), event) for event in map(_event, range(COUNT))]
    for thread, _ in found:
        thread.start()
    yield found
    over.set()
    for thread, event in found:
        event.set()
        thread.join()


def _event(_: int) -> threading.Event:
    return threading.Event()


def settled() -> ThreadMeter:
    meter = ThreadMeter(os.getpid())
    for _ in range(READS):
        meter.read()
    meter.end_window(1.0)
    return meter


def test_idle_threads_are_not_read_again_and_again(
    waiting: list[tuple[threading.Thread, threading.Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    meter, read = settled(), []
    plain = procfs.read_schedstat
    monkeypatch.setattr(procfs, "read_schedstat", lambda pid, tid: read.append(tid) or plain(pid, tid))
    for _ in range(READS):
        meter.read()
    resting = {thread.native_id for thread, _ in waiting}
    times = [read.count(tid) for tid in resting]
    assert min(times) >= 1
    assert sum(times) < COUNT * READS / 4
    assert read.count(os.getpid()) == READS


def test_a_thread_that_wakes_up_is_found_at_once(waiting: list[tuple[threading.Thread, threading.Event]]) -> None:
    meter = settled()
    for thread, event in waiting[:3]:
        event.set()
        thread.join(0.0)
        while (procfs.read_schedstat(os.getpid(), thread.native_id or 0) or procfs.SchedStat(0, 0, 0)).cpu_ns < 1e8:
            time.sleep(0.001)
        meter.read()
        rows, _, _ = meter.end_window(1.0)
        assert any(row.tid == thread.native_id and (row.cpu_ratio or 0.0) > 0.05 for row in rows)
