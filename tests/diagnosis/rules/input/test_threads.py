"""Data that threads of the training process prepare: which thread is named, and which wait shows it."""

import pytest

from tests.diagnosis.cpu import run
from tests.session.records import frames
from tuimon.records import StackCount, Stacks

LOOP = frames(
    ("train.py", 10, "main", "for x, y in batches:", True),
    ("/lib/site-packages/nodes/base.py", 80, "__next__"),
    ("/lib/python3.11/threading.py", 327, "wait"),
    ("train.py", 11, "main", "loss = model(x)", True),
    ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
    ("train.py", 12, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("read.py", 5, "read", "out = pad(decode(path))", True),
    ("/lib/python3.11/threading.py", 382, "notify"),
    ("read.py", 9, "shuffle", "for a, b in pairs:", True),
    first=30,
)
BATCH, MODEL, BACKWARD, READ = [30, 31, 32], [33, 34], [35, 36], [37]
PASSES_ON, AT_HEAD, SHUFFLES = [30, 31, 38], [30], [30, 39]


def found(*data):
    """What is found of 60 samples in the data phase, of these stacks, and a thread that reads."""
    main = [*data, (MODEL, 20), (BACKWARD, 20)]
    sampled = [StackCount(100, "MainThread", stack, count) for stack, count in main]
    record = Stacks(t=12, pid=100, window_s=1.0, samples=100, stacks=[*sampled, StackCount(101, "reader", READ, 100)])
    return run({"between": 80, "backward": 20}, LOOP, record)[0]


@pytest.mark.parametrize("data", [[(BATCH, 60)], [(AT_HEAD, 55), (PASSES_ON, 5)]], ids=["queue", "GIL"])
def test_a_thread_that_is_waited_for_is_named(data):
    first = found(*data)
    assert (first.cause, first.where[0].function) == ("hand_rolled_loader", "read")
    assert "in a thread" in first.headline
    assert "several processes" in first.action


@pytest.mark.parametrize(
    ("data", "function"), [([(AT_HEAD, 60)], "main"), ([(SHUFFLES, 55), (PASSES_ON, 5)], "shuffle")]
)
def test_what_the_training_thread_makes_itself_is_no_other_threads(data, function):
    first = found(*data)
    assert "in a thread" not in first.headline
    assert first.where[0].function == function
