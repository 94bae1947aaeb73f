"""The driver's parts on a real pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waiting import until
from tuimon.views.tui.terminal_driver import WAITING_LIMIT, ExitEvent, TerminalOutput


@pytest.fixture
def terminal():
    """Both ends of a terminal: ours, the program's."""
    ours, theirs = pty.openpty()
    ends = [ours, theirs]
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def null_in_place_of(handle):
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, handle)
    os.close(null)


def test_the_input_thread_ends_once_the_terminal_is_gone_and_never_begins_again(terminal):
    ours, theirs = terminal
    lost = []
    event = ExitEvent(theirs, lambda: lost.append(True))
    assert not event.is_set()
    os.write(ours, b"q")
    assert not event.is_set()
    null_in_place_of(ours)  # closes our end
    assert event.is_set()
    assert lost
    null_in_place_of(theirs)  # as after the hand-over
    assert event.is_set()


def test_two_threads_may_ask_at_once(terminal):
    """The input thread asks before each wait, the app when it ends input: an error there would leave the thread."""
    event = ExitEvent(terminal[1], lambda: None)
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(lambda: [event.is_set() for _ in range(10_000)]) for _ in range(4)]
    assert not any(any(answer.result()) for answer in answers)


def test_output_to_a_terminal_that_takes_nothing_is_left_out_until_it_does(terminal):
    ours, theirs = terminal
    stale = threading.Event()
    with open(theirs, "w", closefd=False) as file:
        output = TerminalOutput(file, on_lost=lambda: None, on_stale=stale.set)
    assert output.admit()
    output.write("x" * 1_000_000)
    writer = threading.Thread(target=output.flush, daemon=True)
    writer.start()
    admitted = 0
    while output.admit():
        admitted += 1
    assert admitted == WAITING_LIMIT - 1
    assert output.admit(always=True)  # what gives the terminal back is never left out
    assert not stale.is_set()
    for _ in range(admitted + 1):
        output.write("y")
    count = 0
    while count < 1_000_000:
        count += len(os.read(ours, 65536))
    until(lambda: not writer.is_alive())
    output.flush()
    assert stale.wait(30)
    assert output.admit()


def test_output_to_a_lost_terminal_is_reported_once_a_write_and_raises_nothing(terminal):
    ours, theirs = terminal
    lost = []
    with open(theirs, "w", closefd=False) as file:
        output = TerminalOutput(file, on_lost=lambda: lost.append(True), on_stale=lambda: None)
    null_in_place_of(ours)
    for _ in range(100):
        assert output.admit()
        output.write("x")
        output.flush()
    assert len(lost) == 1


def test_output_waits_where_another_program_has_made_the_terminal_non_blocking(terminal):
    ours, theirs = terminal
    os.set_blocking(theirs, False)
    with open(theirs, "w", closefd=False) as file:
        output = TerminalOutput(file, on_lost=lambda: pytest.fail("it is there"), on_stale=lambda: None)
    output.admit()
    output.write("x" * 500_000)
    writer = threading.Thread(target=output.flush, daemon=True)
    writer.start()
    count = 0
    while count < 500_000:
        count += len(os.read(ours, 65536))
    until(lambda: not writer.is_alive())
