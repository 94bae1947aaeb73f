"""What moves at a standstill besides files, and who is known to wait as well."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.waiting import until
from tuimon.proc import connections, procfs
from tuimon.sources.base import Suspect
from tuimon.sources.standstill.waiting import Blocked, Reading, Used, Waiting, idle_peers, moving, read_waiting


def waiting(wake_ups=5, link="socket:[1]", t=0.0, cpu_s=0.0, io=0):
    return Waiting({7: Blocked(link, wake_ups)}, {8: Used(t, cpu_s, Reading(t, io, 0))})


def test_who_is_woken_in_one_transfer_receives_and_who_computes_works():
    still = waiting(t=2.0)
    assert moving(waiting(), still) == []
    assert moving(waiting(), waiting(6, t=2.0)) == [7]
    assert moving(waiting(), waiting(6, "socket:[2]", t=2.0)) == []  # it has come to another
    assert moving(waiting(), waiting(t=2.0, cpu_s=1.0)) == [8]
    assert moving(waiting(), waiting(t=2.0, io=1 << 20)) == [8]
    assert moving(waiting(), waiting(t=2.0, cpu_s=0.1, io=1000)) == []
    assert moving(Waiting({}, {}), waiting(t=2.0, cpu_s=9.0)) == []


READS = "import os, subprocess, sys\nr, w = os.pipe()\n"
CHILD = "subprocess.Popen([sys.executable, '-c', {!r}], pass_fds=[w])\nos.close(w)\nos.read(r, 1)"


def read_twice(code, child_state):
    """Two readings of a process that reads from a pipe, and ``idle_peers`` of them, as places in the run's pids."""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        pids = [process.pid]
        try:
            until(lambda: connections.blocked_on(process.pid, process.pid), "a read")
            if child_state:
                pids += until(lambda: children(process.pid), "a child")
                until(lambda: child_state(pids[1]), "the child to wait")
            suspect = Suspect(process.pid, "trainer", None)
            before, after = read_waiting([suspect], pids, 0.0), read_waiting([suspect], pids, 2.0)
            assert set(after.others) == set(pids[1:])
            found = idle_peers(process.pid, before, after, pids)
            return None if found is None else [pids.index(pid) for pid in found]
        finally:
            for pid in pids[1:]:
                os.kill(pid, 9)
            process.kill()


def children(pid):
    return [each for each in procfs.pids() if (stat := procfs.read_process_stat(each)) and stat.ppid == pid]


def test_peers_that_wait_themselves_are_named_and_none_that_may_go_on():
    assert read_twice(READS + "os.read(r, 1)", None) == [0]
    waits = "import os; os.read(0, 1)"
    assert read_twice(READS + CHILD.format(waits), lambda pid: connections.blocked_on(pid, pid)) == [0, 1]
    assert read_twice(READS + CHILD.format("import time; time.sleep(99)"), connections.is_sleeping) is None
