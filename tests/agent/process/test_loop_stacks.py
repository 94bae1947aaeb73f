"""Where a program's loop calls backward and its optimizer, as its hooks note it."""

import os

import pytest

from tests.agent.programs import meta_of
from tuimon.agent.process import facts, loop_stacks
from tuimon.proc.ring_facts import ring_facts

torch = pytest.importorskip("torch")


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
    loop_stacks.forget()
    monkeypatch.setattr(loop_stacks, "get_native_id", lambda: os.getpid() + 1)
    loop_stacks.note("backward", None)
    assert loop_stacks.facts() == {}


def test_both_boundaries_of_loops_that_change_are_noted_again():
    loop_stacks.forget()
    loop_stacks.note("backward", None)
    due = [number for number in range(1, 65) if loop_stacks.is_due(number, "backward")]
    assert due == [1, 2, 3, 5, 9, 17, 33]
    assert loop_stacks.is_due(4, "optimizer")  # its first
    loop_stacks.begin_loop()
    assert loop_stacks.is_due(4, "backward")
    loop_stacks.forget()


def test_a_deep_stack_keeps_its_ends():
    loop_stacks.forget()

    def deeper(depth):
        if depth:
            deeper(depth - 1)
        else:
            import sys

            loop_stacks.note("backward", sys._getframe())

    try:
        deeper(200)
        stack = loop_stacks.facts()["loop"]["backward"]
        assert len(stack) == 64
        assert [name for _, _, name in stack[-52:]] == ["deeper"] * 52
    finally:
        loop_stacks.forget()
    assert "loop" not in facts.late_facts()
