"""What of torch's memory lives, by line."""

import inspect
import json
import re
import sys
import time
import types

import pytest

from tuimon.agent import cuda
from tuimon.agent.control import memory, orders
from tuimon.agent.control.memory import Blocks
from tuimon.agent.ring import files
from tuimon.agent.ring.control_words import Command, State
from tuimon.sources.control_channel import ControlError

HERE = (("train.py", 7, "log"), ("train.py", 20, "main"))
THERE = (("train.py", 12, "main"),)


def read(path):
    with open(files.side_file(path, files.MEMORY)) as file:
        return json.load(file)


def named(content):
    """Bytes, blocks and growth by stack."""
    return {
        tuple(tuple(content["lines"][at]) for at in stack["frames"]): (stack["bytes"], stack["blocks"], stack["growth"])
        for stack in content["stacks"]
    }


def test_what_each_step_leaves_behind_grows():
    blocks = Blocks([10, 20, 30, 40])
    for step in range(4):
        blocks.allocate(10 * step + 1, 100 + step, 8, HERE)
        blocks.allocate(10 * step + 2, 5, 50, THERE)  # freed in every step but the last
        if step < 3:
            blocks.free(5)
    content = blocks.content()
    assert named(content) == {HERE: (32, 4, 8), THERE: (50, 1, 0)}
    assert (content["live_bytes"], content["most_bytes"]) == (82, 82)


@pytest.mark.parametrize(("ends", "growth"), [([10, 20, 30, 40], 0), ([10], None)])
def test_what_one_step_leaves_for_good_is_no_growth_and_of_one_step_none_is_known(ends, growth):
    blocks = Blocks(ends)
    blocks.free(77)  # from before
    blocks.allocate(1, 1, 1000, HERE)
    assert named(blocks.content()) == {HERE: (1000, 1, growth)}


def test_stacks_beyond_the_limit_are_summed_up():
    blocks = Blocks([10])
    for number in range(400):
        blocks.allocate(1, number, 1 + number, (("train.py", number, "f"),))
    content = blocks.content()
    assert len(content["stacks"]) == 300 and content["folded_bytes"] == sum(range(1, 101))
    assert content["live_bytes"] == sum(range(1, 401))


class FakeCuda:
    """The part of torch's CUDA allocator that records: its calls, and a trace that the test supplies."""

    def __init__(self, trace):
        self.calls = []
        self.is_recorded = False
        self.trace = trace
        self.memory = types.SimpleNamespace(_record_memory_history=self.record, _snapshot=self.snapshot)

    def is_initialized(self):
        return True

    def current_device(self):
        return 1

    def record(self, enabled, **options):
        self.calls.append((enabled, options.get("stacks")))
        self.is_recorded = enabled is not None

    def snapshot(self):
        return {"segments": [], "device_traces": [[], self.trace]}


def fake_torch(trace):
    cuda, observers = FakeCuda(trace), []
    internals = types.SimpleNamespace(
        _cuda_isHistoryEnabled=lambda: cuda.is_recorded, _cuda_attach_out_of_memory_observer=observers.append
    )
    return types.SimpleNamespace(cuda=cuda, _C=internals, observers=observers)


TRACE = [
    {"action": "alloc", "addr": 1, "size": 512, "time_us": 1,
     "frames": [{"filename": "train.py", "line": 7, "name": "log"}]},
    {"action": "alloc", "addr": 2, "size": 1024, "time_us": 2, "frames": []},
    {"action": "free_requested", "addr": 2, "size": 1024, "time_us": 3, "frames": []},
    {"action": "free_completed", "addr": 2, "size": 1024, "time_us": 3, "frames": []},
    {"action": "segment_alloc", "addr": 0, "size": 2 << 20, "time_us": 1, "frames": []},
]  # fmt: skip


@pytest.fixture
def torch(own_channel, monkeypatch):
    made = fake_torch(list(TRACE))
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def recorded(channel, steps):
    """The order, after as many steps as it wants."""
    request = channel.order(Command.MEMORY, steps)
    for _ in range(1 + steps):
        orders.attend()
    return request


def test_cuda_records_its_own_history(own_channel, torch):
    assert recorded(own_channel, 2).poll().state == State.DONE
    assert torch.cuda.calls == [("all", "python"), (None, None)]
    content = read(own_channel.path)
    assert content["device"] == "cuda:1" and content["most_bytes"] == 1536
    assert named(content) == {(("train.py", 7, "log"),): (512, 1, 512)}


def test_it_is_stopped_in_the_middle_when_nobody_wants_it(own_channel, torch):
    request = own_channel.order(Command.MEMORY, 5)
    orders.attend()
    assert torch.cuda.calls == [("all", "python")]
    request.cancel()
    orders.attend()
    assert torch.cuda.calls == [("all", "python"), (None, None)]
    assert orders.orders.bell[0] == orders.orders.heard


def test_a_history_that_cannot_be_read_is_dropped(own_channel, torch):
    torch.cuda.memory._snapshot = None
    assert recorded(own_channel, 2).poll().state == State.FAILED
    assert torch.cuda.calls == [("all", "python"), (None, None)]


@pytest.mark.parametrize(
    ("steps", "used", "own", "reason"),
    [
        (500, True, False, "at most 100 steps"),
        (5, False, False, "not use CUDA"),
        (2, True, True, "records the allocator's history itself"),
    ],
)
def test_refusals(own_channel, torch, steps, used, own, reason):
    torch.cuda.is_recorded = own
    torch.cuda.is_initialized = lambda: used
    request = own_channel.order(Command.MEMORY, steps)
    orders.attend()
    request.poll()
    with pytest.raises(ControlError, match=reason):
        request.result()
    assert torch.cuda.calls == []


@pytest.fixture
def watched_torch(torch, monkeypatch):
    monkeypatch.setattr(memory, "is_watched", False)
    orders.orders.watch_memory = True
    orders.attend()
    assert torch.cuda.calls == [("all", "python")]
    return torch


def test_what_is_used_of_torchs_internals_is_there():
    """A CPU build has none of it, but its list of functions that are not traced has."""
    rules = pytest.importorskip("torch._dynamo.trace_rules")
    names = set(re.findall(r"torch\._C\.(_cuda\w+)", inspect.getsource(rules)))
    for module in (memory, cuda):
        used = set(re.findall(r"\b_cuda_\w+", inspect.getsource(module)))
        assert used and used <= names


def test_some_steps_are_recorded_within_the_history_that_is_kept_for_errors(own_channel, watched_torch):
    trace = watched_torch.cuda.memory._snapshot()["device_traces"][1]
    request = own_channel.order(Command.MEMORY, 2)
    orders.attend()
    now_us = time.time_ns() // 1000 + 1
    trace.append({"action": "alloc", "addr": 3, "size": 64, "time_us": now_us, "frames": []})
    for _ in range(2):
        orders.attend()
    assert request.poll().state == State.DONE
    assert read(own_channel.path)["live_bytes"] == 64
    assert watched_torch.cuda.calls == [("all", "python")]  # it goes on
    watched_torch.observers[0](1, 4096, 1 << 30, 0)
    assert read(own_channel.path)["live_bytes"] == 512 + 64


def test_an_error_for_want_of_memory_leaves_what_lived(own_channel, watched_torch):
    torch = watched_torch
    (observer,) = torch.observers
    observer(1, 4096, 1 << 30, 0)
    content = read(own_channel.path)
    assert (content["trigger"], content["device"], content["wanted_bytes"]) == ("oom", "cuda:1", 4096)
    assert content["live_bytes"] == 512
    torch.cuda.memory._snapshot = None
    observer(1, 4096, 1 << 30, 0)  # what goes wrong here is not the program's error


def test_without_the_option_nothing_is_watched(torch):
    assert orders.orders.bell[0] == orders.orders.heard
    orders.attend()
    assert torch.cuda.calls == [] and torch.observers == []
