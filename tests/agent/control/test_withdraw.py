"""Hooks that are withdrawn from a training that goes on."""

import json
import os
import signal
import threading

import pytest

from tests.agent.folders import file_names
from tests.agent.programs import environment
from tests.warm_torch import WarmProgram
from tuimon.agent import install
from tuimon.agent.ring.control_words import Command, State
from tuimon.agent.torch_compat import rebinding
from tuimon.sources.control.channel import open_channel
from tuimon.sources.control.errors import NoAgent

pytestmark = pytest.mark.trust

TRAINING = """
import json, sys, torch
from torch.utils.data import DataLoader
watched = [torch.autograd._engine_run_backward, torch.utils.data.dataloader._BaseDataLoaderIter.__next__]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
begun = False
def ours(function):
    return function.__code__.co_name.startswith("tuimon")

while ours(torch.autograd._engine_run_backward):
    for batch in DataLoader(torch.ones(64, 4), batch_size=4):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    if not begun:
        begun = True
        print("begun", flush=True)
from torch.optim import optimizer as hooks
now = [torch.autograd._engine_run_backward, torch.utils.data.dataloader._BaseDataLoaderIter.__next__]
print(json.dumps([[ours(each) for each in watched], [ours(each) for each in now],
                  len(hooks._global_optimizer_pre_hooks), len(hooks._global_optimizer_post_hooks)]))
"""


@pytest.mark.torch
def test_withdrawn_from_a_running_training(tmp_path, monkeypatch):
    rings = tmp_path / "rings"
    monkeypatch.setenv("TUIMON_RING_DIR", str(rings))
    read_end, write_end = os.pipe()
    with open(read_end) as printed, open(write_end, "w") as theirs, open(os.devnull) as null:
        training = WarmProgram(["-c", TRAINING], environment(rings), None, [null.fileno(), theirs.fileno(), 2])
        theirs.close()
        try:
            assert printed.readline() == "begun\n"
            with open_channel(training.pid) as channel:
                answer = channel.order_and_wait(Command.WITHDRAW, timeout_s=60)
            before, after, pre_hooks, post_hooks = json.loads(printed.read())
            assert training.wait() == 0
        finally:
            training.kill()
    assert answer.state == State.DONE
    assert all(before) and not any(after) and (pre_hooks, post_hooks) == (0, 0)
    assert file_names(rings) == []


def test_a_process_without_an_agent(tmp_path, monkeypatch):
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    with pytest.raises(NoAgent, match="no agent of tuimon"):
        open_channel(os.getpid())


class Late(Exception):
    """What the handler raises."""


def test_a_signal_handler_that_raises_leaves_no_half_of_the_hooks(monkeypatch):
    def handler(signum, frame):
        raise Late

    undone = threading.Event()
    monkeypatch.setattr(rebinding, "rebound_names", [undone.set, lambda: signal.raise_signal(signal.SIGUSR1)])
    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Late):
            install.withdraw()
            for _ in range(1000):  # here the interpreter notices what is pending
                os.getpid()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert undone.wait(60)
