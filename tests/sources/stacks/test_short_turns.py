"""Short turns on a core, as the kernel notes them."""

import ctypes
import os
import struct
import threading

import pytest

from tests.sources.programs import running
from tuimon.sources.stacks.pyspy import take_short_turns

#: sched_getattr(2), by machine.
CALLS = {"x86_64": 315, "aarch64": 275}
SLEEPS = "import time; print('up', flush=True); time.sleep(600)"
BEGINS_THREAD = """
import sys, threading, time
print("up", flush=True)
sys.stdin.readline()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("begun", flush=True)
time.sleep(600)
"""


def turn_ns(tid):
    found = ctypes.create_string_buffer(56)
    assert ctypes.CDLL(None).syscall(CALLS[os.uname().machine], tid, found, 56, 0) == 0
    return struct.unpack("=IIQiIQQQII", found.raw)[5]


KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


@pytest.mark.skipif(KERNEL < (6, 12) or os.uname().machine not in CALLS, reason="this kernel has no turns to ask for")
def test_a_process_and_the_threads_that_it_begins_get_short_turns(tmp_path):
    with running(tmp_path, BEGINS_THREAD) as process:
        usual_ns = turn_ns(process.pid)
        assert take_short_turns(process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline()
        (thread,) = {int(tid) for tid in os.listdir(f"/proc/{process.pid}/task")} - {process.pid}
        assert turn_ns(process.pid) == turn_ns(thread) == 100_000 < usual_ns
    assert turn_ns(threading.get_native_id()) == usual_ns  # ours stay as they were


def test_its_niceness_stays(tmp_path):
    with running(tmp_path, SLEEPS) as process:
        os.setpriority(os.PRIO_PROCESS, process.pid, 7)
        take_short_turns(process.pid)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 7


def test_what_has_ended_and_what_the_kernel_runs_otherwise_is_left_alone(tmp_path):
    with running(tmp_path, SLEEPS) as process:
        os.sched_setscheduler(process.pid, os.SCHED_BATCH, os.sched_param(0))
        assert not take_short_turns(process.pid)
        assert os.sched_getscheduler(process.pid) == os.SCHED_BATCH
    assert not take_short_turns(process.pid)


def test_another_machine_is_not_asked(monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "here", "6.18", "", "riscv64")))
    assert not take_short_turns(os.getpid())
