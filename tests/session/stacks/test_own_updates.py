"""Updates that the program writes itself: without an optimizer, what runs without gradients after backward."""

from __future__ import annotations

import pytest

from tests.session.stacks.classified import last_of
from tuimon.records import Frame

TORCH = "/v/lib/python3.11/site-packages/torch"
MODULE = Frame(f"{TORCH}/nn/modules/module.py", 2, "_call_impl")
BACKWARD = Frame(f"{TORCH}/_tensor.py", 3, "backward")
OPTIMIZER = Frame(f"{TORCH}/optim/adam.py", 4, "step")


def _own(line: int, source: str = "", no_grad: tuple[int, int] | None = None) -> Frame:
    return Frame("train.py", line, "main", source, True, no_grad=no_grad)


STEP = [_own(20, "loss = net(x)"), MODULE], [_own(21, "loss.backward()"), BACKWARD]
BLOCK = (22, 26)
UPDATE = [_own(24, "p -= lr * g", BLOCK)]
CALLED = [_own(24, "update(params)", BLOCK), Frame("train.py", 6, "update", "m.mul_(0.9).add_(g)", True)]


@pytest.mark.parametrize(
    ("stacks", "phase"),
    [
        ([UPDATE], "optimizer"),
        ([CALLED], "optimizer"),
        ([[_own(25, "p.grad = None", BLOCK)]], "optimizer"),
        ([[_own(27, "log(loss)")]], "other"),  # with gradients
        ([[_own(19, "wanted = teacher(x)", (19, 19))]], "data"),  # before backward
        ([[_own(28, "optimizer.step()"), OPTIMIZER], CALLED], "other"),
    ],
)
def test_which_work_is_an_update(stacks: list[list[Frame]], phase: str) -> None:
    last = last_of(*STEP, *stacks)
    assert (last.phase, last.moved_from) == (phase, "other" if phase == "optimizer" else None)


def test_a_loop_that_does_not_train_updates_nothing() -> None:
    found = last_of(STEP[0], [_own(24, "rows.append(out)", BLOCK)], forward_only=True)
    assert found.phase == "other"
