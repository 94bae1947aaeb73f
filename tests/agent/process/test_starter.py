"""Who may read the process."""

import ctypes
import os
import subprocess
import sys

import pytest

from tuimon.agent.process import facts
from tuimon.launch.child import launch_environment

ANY = ctypes.c_ulong(-1).value


@pytest.fixture
def admitted(monkeypatch):
    """Whom the process admits, under these variables; None: nobody."""
    calls = []

    class Libc:
        def __init__(self, name):
            self.prctl = lambda *arguments: calls.append(arguments)

    monkeypatch.setattr(ctypes, "CDLL", Libc)
    monkeypatch.setattr(facts, "ptrace_scope", lambda: 1)

    def admits(variables):
        calls.clear()
        monkeypatch.setattr(facts, "is_restricted", None)
        for name in ("TUIMON_RUN", "TUIMON_MONITOR", "TUIMON_OUTPUT"):
            monkeypatch.delenv(name, raising=False)
            if name in variables:
                monkeypatch.setenv(name, variables[name])
        facts.allow_tracers()
        assert all(call[0] == 0x59616D61 for call in calls)
        return calls[0][1].value if calls else None

    return admits


def test_nobody_is_admitted_where_nobody_watches(admitted):
    assert admitted({}) is None


def test_a_headless_run_admits_its_monitor(admitted):
    assert admitted(launch_environment("r", None, markers=True)) == os.getpid()


def test_a_run_that_may_be_left_and_attached_to_admits_any(admitted, monkeypatch):
    assert admitted(launch_environment("r", "/out", markers=True)) == ANY
    monkeypatch.setenv("TUIMON_MONITOR", "1-1-pid:[1]")  # of an outer tuimon
    assert launch_environment("r", "/out", markers=True)["TUIMON_MONITOR"].startswith(f"{os.getpid()}-")


def test_a_monitor_that_has_ended_admits_nobody(admitted):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    pid, ticks, namespace = launch_environment("r", None, markers=True)["TUIMON_MONITOR"].split("-", 2)
    assert admitted({"TUIMON_RUN": "r", "TUIMON_MONITOR": f"{child.pid}-{ticks}-{namespace}"}) is None
    assert admitted({"TUIMON_RUN": "r", "TUIMON_MONITOR": f"{pid}-1-{namespace}"}) is None  # its pid is another's


@pytest.mark.parametrize(("monitor", "admits"), [("1-1-pid:[1]", ANY), ("x", None)])
def test_a_monitor_without_a_pid_in_here_cannot_be_named_and_what_is_no_name_is_passed_over(admitted, monitor, admits):
    assert admitted({"TUIMON_RUN": "r", "TUIMON_MONITOR": monitor}) == admits


def test_an_open_of_the_programs_own_raises_nothing_without_yama(admitted, monkeypatch):
    """As eventlet's, which takes the place of ``os.open``."""

    def missing():
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(facts, "ptrace_scope", missing)
    assert admitted({"TUIMON_RUN": "r"}) is None


def test_without_yama_nothing_is_needed(admitted, monkeypatch):
    monkeypatch.setattr(facts, "ptrace_scope", lambda: 0)
    assert admitted({"TUIMON_RUN": "r"}) is None
