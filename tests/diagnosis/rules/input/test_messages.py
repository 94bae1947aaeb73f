"""Data that other processes send to the training: whose work is named, and which wait shows it."""

from __future__ import annotations

import pytest

from tests.diagnosis.cpu import run, workers
from tests.session.records import frames, stacks
from tuimon.diagnosis.finding import Finding

SITE = "/v/lib/python3.11/site-packages"
PYTHON = "/v/lib/python3.11"
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


def of_user(before: list[int], *others: object) -> Finding:
    """What is found where most of the step is spent before the model, in a stack."""
    return found(USERS, stacks(12, (before, 60), ([34, 35], 20), ([36, 37], 20)), *others)


@pytest.mark.parametrize("awaited", [[30, 31, 32], [33]], ids=["queue", "line"])
def test_what_the_users_processes_make_is_named_there(awaited: list[int]) -> None:
    finding = of_user(awaited, *workers(1, 0.4, (SERVES, 60), (MAKES, 40), role="child"))
    assert "another process makes it" in finding.headline
    assert finding.where[0].function == "make"
    assert "make make() make.py:7 cheaper" in finding.action
    assert "make the data in more processes" in finding.action


def test_what_the_training_process_makes_is_no_other_processes() -> None:
    finding = of_user([40, 39], *workers(1, 1.0, (MAKES, 100)))
    assert "the training process prepares it" in finding.headline
