"""Stack samples that the agent takes inside the process."""

import json
import os
import sys
import threading
import time

import pytest

from tests.waiting import until
from tuimon.agent import own_threads
from tuimon.agent.control import orders, sample
from tuimon.agent.control.sample import FrameWindow
from tuimon.agent.ring import files
from tuimon.agent.ring.control_words import Command, State
from tuimon.sources.control_channel import ControlError
from tuimon.sources.stacks.speedscope import parse_speedscope

FAST = files.pack_sampling(20, 200)


def ordered(channel, argument=FAST):
    request = channel.order(Command.SAMPLE, argument)
    orders.attend()
    return request


def test_windows_of_all_threads_and_their_end(own_channel):
    parked, threads_before = threading.Event(), threading.active_count()
    waiter = threading.Thread(target=parked.wait, name="waits here")
    waiter.start()
    try:
        request = ordered(own_channel)
        until(lambda: request.poll().value >= 2)
        assert threading.active_count() == threads_before + 1
        with open(files.side_file(own_channel.path, files.STACKS), "rb") as file:
            raw = file.read()
        window = json.loads(raw)
        samples = parse_speedscope(raw, os.getpid())
    finally:
        request.cancel()
        orders.attend()
        parked.set()
        waiter.join()
    assert window["order"] == request.number and window["window"] >= 1 and samples.instants == window["instants"] > 0
    main, other = samples.threads[0], next(thread for thread in samples.threads if thread.name == "waits here")
    assert main.tid == os.getpid() and main.name == "MainThread" and other.tid == waiter.native_id
    here = test_windows_of_all_threads_and_their_end.__name__
    assert all(here in {frame.function for frame in stack} for stack in main.stacks)
    (stack,) = other.stacks
    assert stack[-1].function == "wait" and stack[-1].file == threading.__file__
    assert not any(
        frame.file.endswith("control/sample.py") for thread in samples.threads for s in thread.stacks for frame in s
    )
    until(lambda: not os.path.exists(files.side_file(own_channel.path, files.STACKS)))


def test_samples_that_cost_much_are_taken_less_often_from_the_second_one_on(own_channel, monkeypatch):
    """Of many threads a sample may take 10 ms: of windows of 0.2 s at 20 Hz each then has one, the first two."""

    def burn(self, own):
        del own
        self.instants += 1
        since_ns = time.thread_time_ns()
        while time.thread_time_ns() - since_ns < 10_000_000:
            pass

    seen: dict[int, int] = {}
    monkeypatch.setattr(FrameWindow, "sample", burn)
    monkeypatch.setattr(sample, "safe_window", lambda: FrameWindow)
    monkeypatch.setattr(sample, "write_file", lambda _, content: seen.update({content["window"]: content["instants"]}))
    request = ordered(own_channel)
    until(lambda: len(seen) >= 3)
    request.cancel()
    orders.attend()
    assert seen[1] <= 2 and seen[2] == seen[3] == 1


def test_a_place_is_the_line_that_runs():
    window = FrameWindow()

    def inner():
        window.sample(0)
        here.append(sys._getframe().f_lineno - 1)

    here: list[int] = []
    inner()
    content = window.content()
    (profile,) = [each for each in content["profiles"] if f"Thread {threading.get_native_id()} " in each["name"]]
    frames = [content["shared"]["frames"][at] for at in profile["samples"][0]]
    names = [(frame["name"], frame["line"]) for frame in frames]
    assert ("inner", here[0]) in names and names[-1][0] == "threads"


def test_a_deep_stack_is_cut_at_its_root_and_counted():
    window = FrameWindow()

    def deeper(depth):
        return deeper(depth - 1) if depth else window.sample(0)

    deeper(sample.MAX_DEPTH)
    content = window.content()
    assert content["cut"] >= 1 and max(len(s) for p in content["profiles"] for s in p["samples"]) == sample.MAX_DEPTH


def test_it_ends_with_its_monitor(own_channel, monkeypatch):
    request = ordered(own_channel)
    until(lambda: request.poll().value)
    monkeypatch.setattr(sample.Task, "is_wanted", lambda task: False)
    until(lambda: request.poll().state == State.STOPPED)
    until(lambda: not os.path.exists(files.side_file(own_channel.path, files.STACKS)))


def test_what_is_out_of_bounds_is_not_begun(own_channel):
    assert ordered(own_channel, files.pack_sampling(1000, 200)).poll().state == State.FAILED


def test_without_a_gil_it_is_refused_where_a_dump_may_crash(own_channel, monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    monkeypatch.setattr(own_threads, "SAFE_DUMPS", (99,))
    request = ordered(own_channel)
    request.poll()
    with pytest.raises(ControlError, match="this Python has no GIL"):
        request.result()


def test_a_forked_child_finds_no_thread_and_its_parent_goes_on(own_channel):
    before = set(os.listdir("/proc/self/task"))
    request = ordered(own_channel)
    until(lambda: request.poll().value >= 3)
    (tid,) = set(os.listdir("/proc/self/task")) - before
    child = os.fork()
    if child == 0:
        os._exit(0 if len(os.listdir("/proc/self/task")) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    until(lambda: not os.path.exists(f"/proc/self/task/{tid}"), "the end of the thread")  # the kernel keeps it a moment
    assert orders.orders.bell[0] != orders.orders.heard
    orders.attend()
    assert orders.orders.bell[0] == orders.orders.heard
    counted, counts = request.poll().value, []
    until(lambda: counts.append(request.poll().value) or counts[-1] > counted)
    assert counts == sorted(counts)  # windows are counted on: a monitor reads those that are new
    request.cancel()
    orders.attend()
