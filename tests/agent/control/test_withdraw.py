"""Hooks that are withdrawn: by order, and when their monitor is gone."""

import os
import signal
import threading

import pytest

from tuimon.agent import install, runtime
from tuimon.agent.control import orders
from tuimon.agent.ring.control_words import ABANDONED_NS, GONE_NS, VERSION_WORD, Command, State
from tuimon.agent.torch_compat import rebinding
from tuimon.sources import control_channel as monitor
from tuimon.sources.control_channel import Channel, ControlError, open_channel


@pytest.mark.trust
def test_a_process_without_an_agent(shared_memory):
    with pytest.raises(ControlError, match="no agent of tuimon"):
        open_channel(os.getpid())


def test_an_agent_of_another_version_takes_no_orders(own_channel):
    runtime.writer().control_words()[VERSION_WORD] += 1
    with pytest.raises(ControlError, match=r"takes no orders: it belongs to another version"):
        open_channel(os.getpid())


class Late(Exception):
    """What the handler raises."""


@pytest.mark.trust
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


@pytest.fixture
def withdrawn(own_channel, monkeypatch):
    """How often the hooks were withdrawn."""
    calls = []

    def withdraw():
        calls.append(True)
        runtime.end_orders()

    monkeypatch.setattr(runtime, "withdraw", withdraw)
    monkeypatch.setattr(orders.orders, "check_ns", 0)
    return calls


@pytest.fixture
def late(own_channel, clock):
    """The same channel, of a monitor whose clock can be stopped."""
    with Channel(own_channel.path, clock_ns=clock) as channel:
        yield channel


def backward(monkeypatch):
    """What the hook around backward does, a second after the last."""
    monkeypatch.setattr(orders.orders, "check_ns", 0)
    if orders.orders.bell[0] != orders.orders.heard:
        orders.attend()


def test_hooks_go_when_their_monitor_is_gone_for_long(late, clock, withdrawn, monkeypatch):
    request = late.order(Command.HOLD)
    backward(monkeypatch)
    assert request.poll().state == State.WORKING
    for behind_ns in (0, 2 * GONE_NS, ABANDONED_NS - GONE_NS):  # stopped for a while, and back again
        clock.behind_ns = behind_ns
        late.send_heartbeat(Command.HOLD)
        backward(monkeypatch)
        assert not withdrawn
    clock.behind_ns = ABANDONED_NS + GONE_NS
    late.send_heartbeat(Command.HOLD)
    backward(monkeypatch)
    backward(monkeypatch)
    assert withdrawn == [True]
    assert orders.orders.words is None


def test_hooks_stay_when_the_hold_is_taken_back_or_another_takes_it(late, clock, withdrawn, monkeypatch):
    late.order(Command.HOLD)
    backward(monkeypatch)
    clock.behind_ns = GONE_NS + 1_000_000_000
    late.send_heartbeat(Command.HOLD)
    monkeypatch.setattr("tuimon.agent.ring.control_words.GONE_NS", GONE_NS)
    clock.behind_ns = 0
    assert late.is_abandoned(Command.HOLD)
    request = late.order(Command.HOLD)
    backward(monkeypatch)
    assert request.poll().state == State.WORKING and not late.is_abandoned(Command.HOLD)
    request.cancel()
    backward(monkeypatch)
    clock.behind_ns = ABANDONED_NS * 3
    late.send_heartbeat(Command.HOLD)
    backward(monkeypatch)
    assert not withdrawn and not orders.orders.tasks


def test_other_orders_are_heard_meanwhile(late, withdrawn, monkeypatch):
    late.order(Command.HOLD)
    backward(monkeypatch)
    request = late.order(Command.WITHDRAW)
    orders.attend()
    assert withdrawn == [True]
    assert request.poll().state == State.DONE


def test_a_monitor_holds_and_lets_go(own_channel, withdrawn, monkeypatch):
    holding = monitor.HookHolder()
    assert not holding.hold(os.getpid(), only_left=True)  # of tuimon run: nobody's to withdraw
    assert holding.hold(os.getpid()) and holding.pids() == {os.getpid()}
    backward(monkeypatch)
    holding.send_heartbeat()
    assert holding.pids() == {os.getpid()}
    assert not monitor.HookHolder().hold(os.getpid())  # the first one lives
    runtime.end_orders()
    holding.send_heartbeat()
    assert holding.pids() == set()
    holding.close()
    assert not withdrawn
