"""Loops that a library owns, and its functions' lines: what it calls before the model makes the batch."""

from __future__ import annotations

import pytest

from tuimon.records import Frame, LoopStack
from tuimon.session.samples.classify import Sample, classify_samples
from tuimon.session.samples.frame_table import FrameTable
from tuimon.session.samples.seen_boundaries import SeenBoundaries

SITE = "/v/lib/python3.11/site-packages"
LIBRARY = f"{SITE}/nice/trainer.py"
FRAMES = {
    "main": Frame("train.py", 37, "main", "model.fit(x)", True),
    "later": Frame("train.py", 39, "main", "model.test(x)", True),
    "fit": Frame(LIBRARY, 258, "fit"),
    "epoch:fetch": Frame(LIBRARY, 480, "epoch"),
    "epoch:prepare": Frame(LIBRARY, 482, "epoch"),
    "epoch:batch": Frame(LIBRARY, 484, "epoch"),
    "epoch:end": Frame(LIBRARY, 486, "epoch"),
    "batch:prepare": Frame(LIBRARY, 493, "batch"),
    "batch:model": Frame(LIBRARY, 497, "batch"),
    "batch:score": Frame(LIBRARY, 499, "batch"),
    "batch:backward": Frame(LIBRARY, 501, "batch"),
    "notify": Frame(f"{SITE}/nice/callbacks.py", 9, "notify"),
    "fetch": Frame(f"{SITE}/torch/utils/data/dataloader.py", 1, "__next__"),
    "module": Frame(f"{SITE}/torch/nn/modules/module.py", 2, "_call_impl"),
    "update": Frame(f"{SITE}/torch/optim/adam.py", 227, "step"),
    "backward": Frame(f"{SITE}/torch/_tensor.py", 3, "backward"),
    "augment": Frame("train.py", 22, "augment", "x[i] = x[j]", True),
    "numpy": Frame(f"{SITE}/numpy/lib.py", 5, "median"),
    "step:prepare": Frame("train.py", 23, "step", "x = augment(x)", True),
    "step:model": Frame("train.py", 24, "step", "loss = net(augment(x))", True),
    "step:log": Frame("train.py", 26, "step", "log(loss)", True),
    "step:backward": Frame("train.py", 25, "step", "self.backward(loss)", True),
    "on_batch": Frame("train.py", 30, "on_batch", "histogram(net)", True),
}
IDS = {name: number for number, name in enumerate(FRAMES)}
TRAINING = ["main fit epoch:fetch fetch", "main fit batch:model module", "main fit batch:backward backward"]
WHOLE_PATH = "main fit epoch:batch batch:backward backward"


def ids(stack: str) -> tuple[int, ...]:
    """Of frames by name, root first."""
    return tuple(IDS[name] for name in stack.split())


def classified(stack: str, training: list[str], *, has_loader: bool = True, noted: str = WHOLE_PATH) -> Sample:
    """A stack among those of training, whose loop was noted."""
    table, seen = FrameTable(), SeenBoundaries()
    table.add_frames(0, list(FRAMES.values()))
    seen.add_noted([LoopStack("backward", list(ids(noted)))] if noted else [])
    stacks = {ids(each): 20 for each in [*training, stack]}
    return classify_samples(stacks, table, has_loader=has_loader, seen=seen)[-1]


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        ("main fit batch:prepare augment", "data"),
        ("main fit batch:prepare augment numpy", "data"),
        ("main fit epoch:prepare augment", "data"),  # one level above the model
        ("main fit batch:score augment", "other"),
        ("main fit epoch:end augment", "other"),
        ("main fit epoch:prepare notify augment", "other"),  # by a function that calls handlers
        ("main fit batch:prepare on_batch", "other"),  # named as a handler
        ("main fit batch:prepare", "other"),  # the library's own work
        ("later batch:prepare augment", "other"),  # of another call of the library
    ],
)
def test_what_the_library_calls_before_the_model_makes_the_batch(stack: str, phase: str) -> None:
    last = classified(stack, TRAINING)
    assert last.phase == phase
    assert last.moved_from == ("forward" if phase == "data" else None)  # where markers count it


def test_without_a_loader_samples_divide_what_lies_before_backward() -> None:
    made = classified("main fit batch:prepare augment numpy", TRAINING[1:], has_loader=False)
    assert (made.phase, made.moved_from, made.excluded) == ("data", None, False)
    assert classified("main fit batch:score augment", TRAINING[1:], has_loader=False).phase == "forward"


def test_a_loop_that_nothing_noted_is_known_by_the_functions_that_samples_share() -> None:
    assert classified("main fit batch:prepare augment", TRAINING, noted="").phase == "data"
    assert classified("main fit epoch:prepare augment", TRAINING, noted="").phase == "other"


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        ("main fit batch:model step:prepare augment numpy", "data"),
        ("main fit batch:model notify step:prepare augment", "data"),  # called by way of the library's strategy
        ("main fit batch:model step:model augment numpy", "data"),  # net(augment(x))
        ("main fit batch:model step:log augment", "forward"),
        ("main fit batch:score step:prepare augment", "forward"),  # called for something else
        ("main fit batch:model step:prepare", "forward"),  # an operation of torch's
    ],
)
def test_in_a_function_that_runs_the_model_for_the_library_what_is_called_above_it_makes_the_batch(
    stack: str, phase: str
) -> None:
    training = [TRAINING[0], "main fit batch:model step:model module", TRAINING[2]]
    last = classified(stack, training)
    assert (last.phase, last.moved_from) == (phase, "forward" if phase == "data" else None)


def test_a_function_that_the_optimizer_calls_to_train_makes_its_batch_too() -> None:
    """Lightning passes ``training_step`` and backward to the optimizer, as a closure."""
    training = [
        TRAINING[0],
        "main fit update batch:model step:model module",
        "main fit update batch:backward backward",
    ]
    noted = "main fit update epoch:batch batch:backward backward"
    assert classified("main fit update batch:model step:prepare augment", training, noted=noted).phase == "data"
    assert classified("main fit update", training, noted=noted).phase == "optimizer"


def test_frames_of_a_library_between_the_users_do_not_hide_which_function_trains() -> None:
    """A stack keeps one of them where the path to backward keeps another."""
    training = [
        "main fit epoch:fetch fetch",
        "main fit batch:model step:model module",
        "main fit step:backward batch:backward backward",
    ]
    assert classified("main fit batch:model step:model", training, noted="").phase == "forward"
    assert classified("main fit batch:model step:log", training, noted="").phase == "other"
