"""How many steps a Trainer plans, and who may read the process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import types

import pytest

from tuimon.agent.process import facts, loop_stacks
from tuimon.launch.child import launch_environment


@pytest.fixture(autouse=True)
def anew():
    loop_stacks.forget()
    yield
    loop_stacks.forget()


def library(monkeypatch, name, source):
    """A module of that name in ``sys.modules``."""
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(source, module.__dict__)
    return module


TRANSFORMERS = """
class State:
    def __init__(self, max_steps, global_step):
        self.max_steps, self.global_step = max_steps, global_step

class Trainer:
    def __init__(self, max_steps=1000, global_step=0):
        self.state = State(max_steps, global_step)

    def train(self, call):
        return self._inner_training_loop(call)

    def _inner_training_loop(self, call):
        return call()
"""
LIGHTNING = """
class Trainer:
    def __init__(self, max_steps=-1, max_epochs=None, global_step=0, current_epoch=0):
        self.max_steps, self.max_epochs = max_steps, max_epochs
        self.global_step, self.current_epoch = global_step, current_epoch

def _call_and_handle_interrupt(trainer, call):
    return call()
"""


def test_without_a_trainer_nothing_is_known():
    assert loop_stacks.planned() == {}


def test_a_trainer_of_transformers(monkeypatch):
    trainers = library(monkeypatch, "transformers.trainer", TRANSFORMERS)
    resumed = trainers.Trainer(1000, 400)
    assert resumed.train(loop_stacks.planned) == {"planned_steps": 600}
    resumed.state.global_step = 500  # steps are counted from the first time on
    assert resumed.train(loop_stacks.planned) == {"planned_steps": 600}
    assert trainers.Trainer(50).train(loop_stacks.planned) == {"planned_steps": None}


@pytest.mark.parametrize("name", ["lightning.pytorch.trainer.call", "pytorch_lightning.trainer.call"])
@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"max_epochs": 10}, {"planned_epochs": 10}),
        ({"max_epochs": 10, "current_epoch": 4, "max_steps": 500, "global_step": 100},
         {"planned_epochs": 6, "planned_steps": 400}),
        ({"max_epochs": -1}, {}),
    ],
)  # fmt: skip
def test_a_trainer_of_lightning(monkeypatch, name, settings, facts):
    call = library(monkeypatch, name, LIGHTNING)
    assert call._call_and_handle_interrupt(call.Trainer(**settings), loop_stacks.planned) == facts


def test_a_function_of_the_programs_with_such_a_name_is_no_trainer(monkeypatch):
    library(monkeypatch, "transformers.trainer", TRANSFORMERS)

    def train(self):
        return loop_stacks.planned()

    assert train(object()) == {}


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


def test_without_yama_nothing_is_needed(admitted, monkeypatch):
    monkeypatch.setattr(facts, "ptrace_scope", lambda: 0)
    assert admitted({"TUIMON_RUN": "r"}) is None
