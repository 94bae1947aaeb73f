"""What is done to a model before its forward pass is no data."""

import pytest

from tests.session.stacks.classified import classified
from tuimon.records import Frame

TORCH = "/v/lib/python3.11/site-packages/torch"
MODULE = Frame(f"{TORCH}/nn/modules/module.py", 2, "_call_impl")
BACKWARD = Frame(f"{TORCH}/_tensor.py", 3, "backward")
FETCH = Frame(f"{TORCH}/utils/data/dataloader.py", 700, "__next__")


def _own(line: int, source: str = "") -> Frame:
    return Frame("train.py", line, "main", source, True)


STEP = [_own(20, "loss = net(x)"), MODULE], [_own(21, "loss.backward()"), BACKWARD]


def _phases(*stacks: list[Frame]) -> list[str]:
    """The phases of these stacks beside those of a step."""
    return [sample.phase for sample in classified((stack, 100) for stack in (*STEP, *stacks))][len(STEP) :]


@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("optim/optimizer.py", "zero_grad"),
        ("optim/sgd.py", "__init__"),
        ("nn/modules/module.py", "load_state_dict"),
        ("nn/modules/module.py", "zero_grad"),
        ("nn/modules/linear.py", "__init__"),
        ("nn/init.py", "kaiming_uniform_"),
    ],
)
def test_a_model_that_is_made_loaded_or_cleared_is_no_data(file: str, function: str) -> None:
    assert _phases([_own(19), Frame(f"{TORCH}/{file}", 9, function)]) == ["other"]


def test_a_batch_that_is_made_is() -> None:
    padding = Frame(f"{TORCH}/nn/utils/rnn.py", 9, "pad_sequence")
    assert _phases([_own(19)], [_own(19), padding]) == ["data", "data"]


def test_what_a_data_set_does_with_a_model_is_data() -> None:
    made = Frame(f"{TORCH}/nn/modules/linear.py", 9, "__init__")
    assert _phases([_own(19, "x = next(batches)"), FETCH, Frame("train.py", 5, "__getitem__", "", True), made]) == [
        "data"
    ]


def test_the_users_code_that_a_library_of_modules_calls_may_be_data() -> None:
    """Such as a hook that makes the next batch: the innermost of the user's lines decides."""
    called = Frame(f"{TORCH}/nn/modules/module.py", 9, "__getattr__")
    assert _phases([_own(19), called, Frame("train.py", 5, "make", "", True)]) == ["data"]
