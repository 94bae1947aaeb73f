"""Data that other processes send to the training: whose work is named, and which wait shows it."""

from __future__ import annotations

import pytest

from tests.diagnosis.cpu import run, workers
from tests.session.records import frames, stacks
from tuimon.diagnosis.finding import Finding

SITE = "/v/lib/python3.11/site-packages"
PYTHON = "/v/lib/python3.11"
LIBRARYS = frames(
    ("train.py", 9, "main", "algorithm.train()", True),
    (f"{SITE}/nice/learner.py", 20, "learn"),
    (f"{SITE}/nice/remote.py", 71, "wait", "ready = core.wait(objects, timeout)"),
    ("train.py", 20, "shaped", "x = x[order]", True),
    (f"{SITE}/nice/learner.py", 22, "learn"),
    (f"{SITE}/torch/nn/modules/module.py", 99, "_call_impl"),
    (f"{SITE}/nice/learner.py", 24, "learn"),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    first=30,
)
USERS = frames(
    ("train.py", 9, "main", "x, y = batches.get()", True),
    (f"{PYTHON}/multiprocessing/queues.py", 103, "get"),
    (f"{PYTHON}/multiprocessing/connection.py", 395, "_recv"),
    ("train.py", 9, "main", "x, y = channel.recv()", True),
    ("train.py", 11, "main", "loss = model(x)", True),
    (f"{SITE}/torch/nn/modules/module.py", 99, "_call_impl"),
    ("train.py", 12, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("make.py", 5, "serve", "request = channel.recv()", True),
    ("make.py", 7, "make", "x = x * noise", True),
    ("train.py", 9, "main", "x, y = make()", True),
    first=30,
)
SERVES, MAKES = [38], [38, 39]


def found(*records: object) -> Finding:
    times = {"between": 80, "backward": 20}
    return next(finding for finding in run(times, *records) if finding.rule == "input_bound")


def of_library(waits: int, *, called_by_user: bool = True) -> Finding:
    """What is found of 60 samples before the model, of which so many wait for a message."""
    outer = [30] if called_by_user else []
    parts = ([31, 32], waits), ([31, 33], 60 - waits), ([34, 35], 20), ([36, 37], 20)
    return found(LIBRARYS, stacks(12, *((outer + inner, count) for inner, count in parts if count)))


def of_user(before: list[int], *others: object) -> Finding:
    """What is found where most of the step is spent before the model, in a stack."""
    return found(USERS, stacks(12, (before, 60), ([34, 35], 20), ([36, 37], 20)), *others)


def test_a_library_that_waits_for_a_message_makes_nothing_in_the_training_process() -> None:
    finding = of_library(50)
    assert finding.headline.endswith("it is sent to the training, in wait() remote.py:71")
    assert (finding.where[0].function, finding.where[0].line) == ("main", 9)
    assert "make the data in more processes" in finding.action
    assert finding.cause == "hand_rolled_loader"


def test_nor_does_it_where_no_line_of_the_users_calls_it() -> None:
    assert of_library(50, called_by_user=False).headline.endswith("it is sent to the training")


@pytest.mark.parametrize("waits", [0, 20])
def test_where_most_of_the_time_is_no_wait_the_training_process_makes_it(waits: int) -> None:
    assert "sent" not in of_library(waits).headline


@pytest.mark.parametrize("awaited", [[30, 31, 32], [33]], ids=["queue", "line"])
def test_what_the_users_processes_make_is_named_there(awaited: list[int]) -> None:
    finding = of_user(awaited, *workers(1, 0.4, (SERVES, 60), (MAKES, 40), role="child"))
    assert "another process makes it" in finding.headline
    assert finding.where[0].function == "make"
    assert "make make() make.py:7 cheaper" in finding.action
    assert "make the data in more processes" in finding.action


def test_processes_that_only_wait_make_nothing() -> None:
    finding = of_user([33], *workers(1, 0.0, (SERVES, 100), role="child"))
    assert "it is sent to the training" in finding.headline
    assert (finding.where[0].function, finding.where[0].line) == ("main", 9)


def test_what_the_training_process_makes_is_no_other_processes() -> None:
    finding = of_user([40, 39], *workers(1, 1.0, (MAKES, 100)))
    assert "the training process prepares it" in finding.headline
