"""Updates that the program writes itself, by the lines that were sampled."""

import pytest

from tests.session.stacks.classified import last_of
from tuimon.records import Frame
from tuimon.session.stacks.beside import updates_by_gradient

TORCH = "/v/lib/python3.11/site-packages/torch"
MODULE = Frame(f"{TORCH}/nn/modules/module.py", 2, "_call_impl")
BACKWARD = Frame(f"{TORCH}/_tensor.py", 3, "backward")
OPTIMIZER = Frame(f"{TORCH}/optim/adam.py", 4, "step")
DECAY = "v.mul_(0.99); step = lr / v.sqrt()"


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("p -= lr * p.grad", True),
        ("w.data.sub_(lr * w.grad.data)", True),
        ("p.data += -0.1 * p.grad", True),
        ("p.data = p.data - lr * p.grad", True),
        ("m.mul_(b1).add_(p.grad, alpha=1 - b1)", True),
        ("v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)", True),
        ("p.grad.mul_(scale)", False),
        ("p.grad *= scale", False),
        ("p.grad.zero_()", False),
        ("p.grad = None", False),
        ("total += p.grad.norm() ** 2", False),
        ("total += p.grad.detach().abs().max().item()", False),
        ("history.append(p.grad.norm().item())", False),
        ("if p.data == q.grad:", False),
        ("loss.backward()", False),
        ("", False),
    ],
)
def test_which_lines_change_something_by_a_gradient(line: str, is_one: bool) -> None:
    assert updates_by_gradient(line) is is_one


def _own(line: int, function: str, source: str = "") -> Frame:
    return Frame("train.py", line, function, source, True)


STEP = [_own(20, "main", "loss = net(x)"), MODULE], [_own(21, "main", "loss.backward()"), BACKWARD]


def _last_phase(*stacks: list[Frame]) -> tuple[str, str | None]:
    last = last_of(*STEP, *stacks)
    return last.phase, last.moved_from


CALL = _own(22, "main", "update(params)")
BY_GRADIENT = [CALL, _own(6, "update", "m.mul_(0.9).add_(p.grad)")]


def test_a_function_of_which_one_line_does_is_the_update() -> None:
    assert _last_phase(BY_GRADIENT) == ("optimizer", "other")
    assert _last_phase(BY_GRADIENT, [CALL, _own(7, "update", DECAY)]) == ("optimizer", "other")


def test_where_the_loop_itself_updates_its_other_lines_are_none() -> None:
    own = [_own(23, "main", "p -= lr * p.grad")]
    assert _last_phase(own) == ("optimizer", "other")
    assert _last_phase(own, [_own(25, "main", "log(loss)")]) == ("other", None)


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("p -= rate * g", True),
        ("p.add_(g, alpha=-rate)", True),
        ("params = [p - lr * g for p, g in zip(params, grads)]", True),
        ("errors.append(p - q)", False),
    ],
)
def test_without_gradients_what_goes_down_is_the_update_whatever_its_gradient_is_called(
    line: str, is_one: bool
) -> None:
    in_block, outside = [Frame("train.py", 23, "main", line, True, no_grad=span) for span in ((22, 24), None)]
    assert _last_phase([in_block])[0] == ("optimizer" if is_one else "other")
    assert _last_phase([outside])[0] == "other"


def test_beside_an_optimizer_it_is_side_work() -> None:
    step = [_own(24, "main", "optimizer.step()"), OPTIMIZER]
    assert _last_phase(step, [CALL, _own(6, "update", "ema.mul_(0.9).add_(p.grad)")]) == ("other", None)


def test_what_only_looks_at_gradients_is_side_work() -> None:
    assert _last_phase([CALL, _own(6, "update", "norms.append(p.grad.norm().item())")]) == ("other", None)
