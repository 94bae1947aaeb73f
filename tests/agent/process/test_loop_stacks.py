"""Where a program's loop calls backward and its optimizer, as its hooks note it."""

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
