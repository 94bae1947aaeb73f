"""What trainings read from disks: with their workers, those that have ended too, and from where."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tuimon.proc.mounts import Mount, OpenFile
from tuimon.proc.procfs import ProcessIo, read_io
from tuimon.sources import reads as module
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.reads import ReadsSource

ME, WORKER = os.getpid(), 4_000_001
MB = 1 << 20
DATA = OpenFile("/data/a.bin", "", True, Mount("/data", "nfs4"))
LOG = OpenFile("/home/train.log", "", False, Mount("/", "ext4"))
SHARED = OpenFile("/run/batch", "", True, Mount("/run", "tmpfs"))


@pytest.fixture
def run(monkeypatch):
    """A source over this process as a training with one worker; ``io`` is what each has read from the disk."""
    table, clock = ProcessTable(ME, None), SimpleNamespace(now_s=100.0)
    made = SimpleNamespace(
        io={ME: 10 * MB, WORKER: 0}, files=[LOG, LOG, SHARED, SHARED, DATA], roles={ME: "trainer", WORKER: "worker"}
    )

    def step():
        clock.now_s += 5
        table.publish({ME: 1, **({WORKER: 2} if WORKER in made.io else {})}, made.roles)
        return list(source.read())

    def io_of(pid):
        return ProcessIo(0, 0, made.io[pid], 0) if pid in made.io else None

    source = ReadsSource(table, lambda: clock.now_s)
    monkeypatch.setattr(module.procfs, "read_io", io_of)
    monkeypatch.setattr(module.procfs, "read_process_stat", lambda pid: SimpleNamespace(ppid=ME))
    monkeypatch.setattr(module, "open_files", lambda pid: made.files)
    made.step = step
    return made


def test_one_that_reads_from_no_disk_has_no_record_and_no_file_is_looked_for(run):
    run.files = None  # would raise
    assert [run.step() for _ in range(3)] == [[], [], []]


def test_without_an_open_file_the_file_system_is_unknown(run):
    run.files = []
    run.step()
    run.io[ME] = 30 * MB
    assert [(record.total_bytes, record.mount) for record in run.step()] == [(20 * MB, None)]


def test_the_counters_of_a_process_are_read():
    found = read_io(ME)
    assert found is None or (found.by_calls > 0 and found.by_disk >= found.disk_read >= 0)
    assert read_io(2**22 + 1) is None
