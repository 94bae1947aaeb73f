"""What ended children used is told once, whether or not they were seen."""

from __future__ import annotations

import time

import pytest

from tests.sources.programs import running
from tuimon.records import Threads
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.followed import ChildrensCpu
from tuimon.sources.processes.source import ProcessSource

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
    assert _told_s(process.pid, records) == pytest.approx(cpu_s, abs=0.15)


def _told_s(pid, records):
    """CPU of the children of a process: in their windows, and what its own records tell of them."""
    rows = [record for record in records if isinstance(record, Threads)]
    in_windows = sum((row.cpu_ratio or 0.0) * row.window_s for row in rows if row.pid != pid)
    return in_windows + sum(row.ended_cpu_s or 0.0 for row in rows if row.pid == pid)
