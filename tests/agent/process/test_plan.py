"""How many steps a Trainer plans, read off a stack like that of its loop."""

import sys
import types

import pytest

from tuimon.agent.process import loop_stacks
from tuimon.agent.process.facts import late_facts


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


def test_another_version_of_the_library_is_left_alone(monkeypatch):
    trainers = library(monkeypatch, "transformers.trainer", TRANSFORMERS)
    trainer = trainers.Trainer()
    del trainer.state
    assert "planned_steps" not in trainer.train(late_facts)


def test_a_function_of_the_programs_with_such_a_name_is_no_trainer(monkeypatch):
    library(monkeypatch, "transformers.trainer", TRANSFORMERS)

    def train(self):
        return loop_stacks.planned()

    assert train(object()) == {}
