"""Where a program's loop calls backward and its optimizer, as its hooks note it; how many steps a Trainer plans."""

import os
import sys
import types

import pytest

from tests.agent.programs import meta_of
from tuimon.agent.process import facts, loop_stacks
from tuimon.proc.ring_facts import ring_facts

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def anew():
    loop_stacks.forget()
    yield
    loop_stacks.forget()


def train(weight, optimizer):
    weight.sum().backward()
    optimizer.step()
    return train.__code__.co_firstlineno


def loop_of(runtime):
    """The stacks at the boundaries of the loop, as the ring has them."""
    return {stack.boundary: stack.frames for stack in ring_facts(meta_of(runtime)).loop}


def test_the_first_step_of_a_loop_is_noted(hooked, weight):
    first = train(weight, torch.optim.SGD([weight], lr=0.1))
    loop = loop_of(hooked)
    own = {name: [(line, what) for file, line, what in frames if file == __file__] for name, frames in loop.items()}
    assert own["backward"][-1] == (first + 1, "train")
    assert own["optimizer"][-1] == (first + 2, "train")
    assert loop["backward"][-1][2] == "tuimon_backward"
    assert any("torch/optim/" in file for file, _, _ in loop["optimizer"])


def test_backward_that_accumulates_is_the_loops_though_more_only_return_gradients(hooked, weight):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    lines = []
    for _ in range(3):
        for _ in range(3):
            torch.autograd.grad(weight.sum(), weight)
        lines.append(train(weight, optimizer) + 1)
    loop = loop_of(hooked)
    assert [line for file, line, what in loop["backward"] if what == "train"] == lines[:1]


def test_where_all_backward_passes_return_gradients_they_are_the_loops(hooked, weight):
    for _ in range(3):
        torch.autograd.grad(weight.sum(), weight)
    loop = loop_of(hooked)
    assert loop["backward"][-1][2] == "tuimon_backward"


def test_another_thread_is_not_the_loop(monkeypatch):
    monkeypatch.setattr(loop_stacks, "get_native_id", lambda: os.getpid() + 1)
    loop_stacks.note("backward", None)
    assert loop_stacks.facts() == {}


def test_both_boundaries_of_loops_that_change_are_noted_again():
    loop_stacks.note("backward", None)
    due = [number for number in range(1, 65) if loop_stacks.is_due(number, "backward")]
    assert due == [1, 2, 3, 5, 9, 17, 33]
    assert loop_stacks.is_due(4, "optimizer")  # its first
    loop_stacks.begin_loop()
    assert loop_stacks.is_due(4, "backward")


def test_a_deep_stack_keeps_its_ends():
    def deeper(depth):
        if depth:
            deeper(depth - 1)
        else:
            loop_stacks.note("backward", sys._getframe())

    deeper(200)
    stack = loop_stacks.facts()["loop"]["backward"]
    assert len(stack) == 64
    assert [name for _, _, name in stack[-52:]] == ["deeper"] * 52
    loop_stacks.forget()
    assert "loop" not in facts.late_facts()


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
