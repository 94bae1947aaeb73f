"""Processes that are watched for their ends."""

import os
import subprocess
import sys

from tuimon.proc import procfs
from tuimon.proc.endings import Endings


def begun():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    return process, (process.pid, procfs.start_ticks(process.pid))


def test_a_process_is_among_the_living_until_it_ends():
    endings = Endings()
    (one, first), (other, second) = begun(), begun()
    endings.watch(*first)
    endings.watch(*second)
    assert endings.living() == {first, second}
    one.communicate(b"\n")
    assert endings.living() == {second}
    endings.forget(*first)
    other.communicate(b"\n")
    assert not endings.living()
    endings.close()


def test_one_that_took_over_a_pid_is_not_taken_for_the_one_before():
    endings = Endings()
    process, (pid, start_ticks) = begun()
    endings.watch(pid, start_ticks - 1)
    assert not endings.living()
    process.communicate(b"\n")


def test_where_the_kernel_has_no_descriptors_of_processes_nothing_is_known(monkeypatch):
    def refused(pid):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused)
    endings = Endings()
    endings.watch(os.getpid(), procfs.start_ticks(os.getpid()))
    assert not endings.living()


def test_no_descriptor_is_left_open():
    before = set(os.listdir("/proc/self/fd"))
    endings = Endings()
    own = os.getpid(), procfs.start_ticks(os.getpid())
    endings.watch(*own)
    endings.watch(own[0], own[1] - 1)
    endings.close()
    assert set(os.listdir("/proc/self/fd")) == before
