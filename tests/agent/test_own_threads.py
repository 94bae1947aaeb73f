"""Stacks of this process that are sampled without a frame object, and the end of a thread."""

import subprocess
import sys
import threading
import types

import pytest

from tests.agent.programs import ROOT
from tests.waiting import until
from tuimon.agent import own_threads
from tuimon.agent.control.sample import DumpedWindow
from tuimon.agent.own_threads import dump, dumped_place

#: Threads come and go; a collection that begins in the sampling thread lets them, as any finalizer may.
COME_AND_GO = """
import gc, sys, threading, time
from tuimon.agent.control import sample

def deep(depth):
    return deep(depth - 1) if depth else time.sleep(0)

def churn():
    for depth in range(5, 25):
        deep(depth)

def come_and_go():
    while not over:
        thread = threading.Thread(target=churn)
        thread.start()
        thread.join()

over, own = False, threading.get_ident()
gc.set_threshold(5)
gc.callbacks.append(lambda *_: threading.get_ident() == own and time.sleep(0.001))
starters = [threading.Thread(target=come_and_go) for _ in range(3)]
for each in starters:
    each.start()
window = sample.safe_window()()
for _ in range(300):
    window.sample(own)
over = True
for each in starters:
    each.join()
print(window.instants)
"""


def test_threads_that_come_and_go_during_a_collection_harm_nothing():
    """In Python 3.11 a program whose frames were asked for crashed here, or stood still for good."""
    command = [sys.executable, "-c", COME_AND_GO]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["300"]


@pytest.mark.parametrize(
    ("name", "version", "gil", "unsafe"),
    [
        ("cpython", (3, 10), None, False),
        ("cpython", (3, 11), None, True),
        ("pypy", (3, 11), None, False),
        ("cpython", (3, 14), True, False),
        ("cpython", (3, 14), False, True),
    ],
)
def test_frames_are_unsafe_in_3_11_and_without_a_gil(name, version, gil, unsafe, monkeypatch):
    python = types.SimpleNamespace(implementation=types.SimpleNamespace(name=name), version_info=(*version, 0))
    if gil is not None:
        python._is_gil_enabled = lambda: gil
    monkeypatch.setattr(own_threads, "sys", python)
    assert own_threads.has_unsafe_frames() == unsafe


def test_where_a_dump_may_crash_what_runs_is_unknown(monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    monkeypatch.setattr(own_threads, "SAFE_DUMPS", (99,))
    monkeypatch.setattr("faulthandler.dump_traceback", None)
    assert own_threads.is_in_file("/nowhere.py") and own_threads.is_running(1, [])
    monkeypatch.undo()
    assert not own_threads.is_in_file("/nowhere.py") and not own_threads.is_running(1, [])


@pytest.fixture
def waiting():
    """A thread that waits in a function of a name beyond ASCII."""
    over = threading.Event()

    def waiting():
        over.wait()

    waiting.__code__ = waiting.__code__.replace(co_name="größer")
    thread = threading.Thread(target=waiting, name="waits here")
    thread.start()
    until(lambda: any(b"wait" in frame for each in dump() if each.ident == thread.ident for frame in each.frames))
    yield thread
    over.set()
    thread.join()


def test_a_stack_is_that_of_the_interpreter(waiting):
    window = DumpedWindow()
    window.sample(threading.get_ident())
    content = window.content()
    (profile,) = [each for each in content["profiles"] if "waits here" in each["name"]]
    assert profile["name"] == f'Thread {waiting.native_id} "waits here"'
    frames = [content["shared"]["frames"][at] for at in profile["samples"][0]]
    line = sys._current_frames()[waiting.ident].f_back.f_back.f_lineno
    assert {"name": "größer", "file": __file__, "line": line} in frames
    assert frames[-1]["name"] == "wait" and frames[0]["name"] == "_bootstrap"
    assert content["instants"] == 1 and not content["cut"]


def test_one_thread_is_sampled_alone_and_none_that_has_ended(waiting):
    window = DumpedWindow()
    assert window.stack_of_thread(waiting.ident) == window.stack_of_thread(waiting.ident) == 0
    assert window.stack_of_thread(1) is None


def test_a_stack_of_more_than_100_frames_counts_as_cut():
    window = DumpedWindow()

    def deeper(depth):
        return deeper(depth - 1) if depth else window.sample(0)

    deeper(150)
    assert window.cut == 1


def test_what_is_cut_may_hold_anything(monkeypatch):
    monkeypatch.setattr(own_threads, "has_unsafe_frames", lambda: True)
    code = threading.Event.wait.__code__

    def deeper(depth):
        return deeper(depth - 1) if depth else own_threads.is_running(threading.get_ident(), [code])

    assert deeper(150)


def test_a_line_that_nobody_can_read_is_no_place():
    assert dumped_place(b"  File ???, line ??? in f") == ("", 0, "f")
    assert dumped_place(rb'  File "/a\xe9\u2603\U0001f600.py", line 12 in <module>') == (
        "/a\xe9\u2603\U0001f600.py",
        12,
        "<module>",
    )
    assert dumped_place(b"???") == ("", 0, "?")


def test_a_thread_whose_name_is_written_with_it(monkeypatch):
    """As Python 3.14 does."""
    text = b"""Thread 0x00007f58c25be6c0 [a [sleeper]] (most recent call first):
  File "/a.py", line 3 in f

Current thread 0x00007f58d06bb740 [main] (most recent call first):
  Garbage-collecting
  File "/a.py", line 9 in <module>
"""
    monkeypatch.setattr("faulthandler.dump_traceback", lambda handle, all_threads: own_threads.os.write(handle, text))
    first, second = dump()
    assert (first.ident, [dumped_place(frame) for frame in first.frames]) == (0x7F58C25BE6C0, [("/a.py", 3, "f")])
    assert (second.ident, len(second.frames), second.is_cut) == (0x7F58D06BB740, 1, False)
