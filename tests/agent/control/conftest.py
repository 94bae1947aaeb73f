"""A ring whose agent takes orders in this process, and the monitor's channel to it."""

import os
import time
from types import SimpleNamespace

import pytest

from tests.agent.ring.markers import SLOTS
from tuimon.agent import pace, runtime
from tuimon.agent.control import orders
from tuimon.agent.ring import control_words
from tuimon.agent.ring.writer import RingWriter
from tuimon.sources.control_channel import Channel, open_channel


@pytest.fixture(autouse=True)
def no_gaps(monkeypatch):
    """Orders are heard at the next backward pass: in a gap of the markers they wait for its end."""
    monkeypatch.setattr(pace, "SHORTEST", 10**9)


class Recorded:
    """A command that writes down what it is called for, and does what the test sets."""

    needs_steps = True

    def __init__(self):
        self.calls = []
        self.begin_with = self.step_with = lambda task: None

    def begin(self, task):
        self.calls.append(("begin", task.argument))
        task.needs_steps = self.needs_steps
        self.begin_with(task)
        return SimpleNamespace(step=lambda: self.step(task), end=lambda: self.calls.append(("end", task.argument)))

    def step(self, task):
        self.calls.append(("step", task.argument))
        self.step_with(task)


class Clock:
    """The clock of a monitor: that of the machine, until the monitor is stopped."""

    def __init__(self):
        self.behind_ns = 0

    def __call__(self):
        return time.monotonic_ns() - self.behind_ns


@pytest.fixture
def command(monkeypatch):
    """Takes the place of every command."""
    recorded = Recorded()
    monkeypatch.setattr(orders, "begin_of", lambda number: recorded.begin)
    return recorded


@pytest.fixture
def writer(tmp_path):
    return RingWriter(str(tmp_path / "1-1.ring"), slot_count=SLOTS)


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """On a busy machine a test may not beat for seconds; a monitor has a thread for it."""
    monkeypatch.setattr(control_words, "GONE_NS", 600_000_000_000)


@pytest.fixture
def clock(monkeypatch):
    """A monitor's clock, on a machine that has been up for a day: one just started could not be so far behind."""
    now_ns = time.monotonic_ns
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns() + 86_400_000_000_000)
    return Clock()


@pytest.fixture
def channel(writer, command, clock):
    orders.forget()
    orders.listen(writer)
    with Channel(writer.path, clock_ns=clock) as channel:
        yield channel
    orders.forget()


@pytest.fixture
def step(channel):
    """What the hook around backward does."""

    def step():
        if orders.orders.bell[0] != orders.orders.heard:
            orders.attend()
            return True
        return False

    return step


@pytest.fixture
def own_channel(monkeypatch, shared_memory):
    """The agent of this process, on a ring of its own, and a channel to it."""
    runtime.stop()
    orders.forget()
    monkeypatch.setattr(runtime, "on", True)
    assert runtime.open_ring()
    with open_channel(os.getpid()) as channel:
        yield channel
    runtime.stop()
