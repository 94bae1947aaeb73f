"""The threads of a process: those that sleep on are read in turns."""

import mmap
import os
import threading
import time
from collections.abc import Iterator

import pytest

from tests.sources.programs import running
from tuimon.proc import procfs
from tuimon.records import Threads
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.followed import ChildrensCpu, ThreadMeter
from tuimon.sources.processes.source import ProcessSource

Waiting = list[tuple[threading.Thread, threading.Event]]
COUNT = 64
READS = 16


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    """Threads that sleep until their event, use 0.2 s of CPU, and sleep on."""
    over = threading.Event()

    def wait(event: threading.Event) -> None:
        event.wait()
        while not over.is_set() and time.thread_time() < 0.2:
            pass
        over.wait()

    events = [threading.Event() for _ in range(COUNT)]
    found = [(threading.Thread(target=wait, args=(event,), daemon=True), event) for event in events]
    for thread, _ in found:
        thread.start()
    yield found
    over.set()
    for thread, event in found:
        event.set()
        thread.join()


def settled() -> ThreadMeter:
    meter = ThreadMeter(os.getpid())
    for _ in range(READS):
        meter.read()
    meter.end_window(1.0)
    return meter


@pytest.mark.trust
def test_idle_threads_are_not_read_again_and_again(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.trust
def test_a_thread_that_wakes_up_is_found_at_once(waiting: Waiting) -> None:
    meter = settled()
    for thread, event in waiting[:3]:
        event.set()
        thread.join(0.0)
        while (procfs.read_schedstat(os.getpid(), thread.native_id or 0) or procfs.SchedStat(0, 0)).cpu_ns < 1e8:
            time.sleep(0.001)
        meter.read()
        rows, *_ = meter.end_window(1.0)
        assert any(row.tid == thread.native_id and (row.cpu_ratio or 0.0) > 0.05 for row in rows)


@pytest.mark.trust
def test_threads_that_have_ended_are_told_once(waiting: Waiting) -> None:
    meter, over = settled(), threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    meter.read()
    assert meter.end_window(1.0)[3] == []
    tid = thread.native_id
    over.set()
    thread.join()
    while tid in procfs.thread_ids(os.getpid()):
        time.sleep(0.001)
    meter.read()
    assert meter.end_window(1.0)[3] == [tid]
    assert meter.end_window(1.0)[3] == []


def test_page_faults_are_counted_for_the_thread_that_touches_memory(waiting: Waiting) -> None:
    meter, block = settled(), mmap.mmap(-1, 256 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_NOHUGEPAGE)
    block.write(bytes(len(block)))
    meter.read()
    meter.end_window(0.5)
    assert meter.faults[0].tid == os.getpid() and meter.faults[0].minor_hz >= 2 * 256
    assert {thread.native_id for thread, _ in waiting}.isdisjoint(each.tid for each in meter.faults)


#: Each child computes for the CPU time given, one after the other.
CHILDREN = """
import os, sys, time
print("ready", flush=True)
sys.stdin.readline()
for seconds in {seconds}:
    if not os.fork():
        while time.process_time() < seconds:
            pass
        os._exit(0)
    os.wait()
sys.stdin.readline()
"""


def test_what_a_child_used_outside_its_windows_is_left_to_tell():
    of = ChildrensCpu()
    of.begin_child(0.5)
    assert of.pass_unreported() == 0.5
    of.end_child(0.5 + 2.2)
    of.take(3.0)
    assert of.pass_unreported() == 0.3
    of.take(3.0)
    assert of.pass_unreported() is None


@pytest.mark.parametrize("seconds", [[0.1] * 10, [0.9, 0.9]])
def test_all_that_children_used_is_in_records(tmp_path, seconds):
    """The first are gone before they are seen; of the others each is read about three times."""
    with running(tmp_path, CHILDREN.format(seconds=seconds)) as process:
        source = ProcessSource(ProcessTable(process.pid, None), 0.3)
        records = list(source.read())
        process.stdin.write("begin\n")
        process.stdin.flush()
        waits_s = 0
        while waits_s < 5:  # reads after the last child has ended
            records += source.read()
            cpu_s = source.known[process.pid].meter.process.children_cpu_s
            waits_s += cpu_s >= sum(seconds) - 0.1
            time.sleep(0.3)
        source.close()
    rows = [record for record in records if isinstance(record, Threads)]
    in_windows = sum((row.cpu_ratio or 0.0) * row.window_s for row in rows if row.pid != process.pid)
    in_its_own = sum(row.ended_cpu_s or 0.0 for row in rows if row.pid == process.pid)
    assert in_windows + in_its_own == pytest.approx(cpu_s, abs=0.15)
