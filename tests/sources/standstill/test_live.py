"""The stacks of a process that really stands still, by the real py-spy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tuimon.proc import procfs
from tuimon.sources.base import Suspect, Suspicion
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.pyspy import recorder
from tuimon.sources.standstill.source import StandstillSource

SCRIPT = """
import os, sys
def read(path):
    print("reading", flush=True)
    with open(path) as file:
        return file.read()
read(sys.argv[1])
"""


@pytest.mark.skipif(recorder.find() is None, reason="py-spy is not installed")
def test_a_process_that_waits_for_a_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    now_s = 100.0
    with subprocess.Popen([sys.executable, path, tmp_path / "fifo"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            while (stat := procfs.read_thread_stat(process.pid, process.pid)) is not None and stat.state != "S":
                pass  # it has yet to come to open()
            source = StandstillSource(ProcessTable(process.pid, None), lambda: now_s)
            source.inspect(lambda: Suspicion(80.0, (Suspect(process.pid, "trainer", None),)))
            assert list(source.read()) == []
            now_s += 3.0
            (record,) = source.read()
        finally:
            process.kill()
    (group,) = record.groups
    assert [frame.function for frame in group.frames] == ["<module>", "read"]
    assert (group.frames[-1].source, group.threads) == ("with open(path) as file:", [(process.pid, process.pid)])
    assert record.processes[0].unknown is None
