"""Who waits for which lock, and who holds it, on literal stacks."""

import pytest

from tuimon.records import Frame, StackGroup, Standstill
from tuimon.session.standing.lock_text import locked
from tuimon.session.standing.lock_waits import deadlock, lock_waits
from tuimon.sources.source_blocks import SourceBlocks

MAIN, WRITER = (100, 100), (100, 107)


def frame(line, function, source, inside="", file="train.py"):
    return Frame(file, line, function, source, True, inside)


LOOP = frame(50, "main", "train_step()")


def test_two_threads_for_each_others_locks_are_a_deadlock_with_both_lines():
    waits = lock_waits(
        {
            MAIN: [LOOP, frame(12, "train_step", "with self.buffer:", inside="self.model")],
            WRITER: [frame(30, "run", "self.flush()", "buffer"), frame(33, "flush", "self.model.acquire()")],
        }
    )
    circle = deadlock(waits)
    assert [(wait.lock, wait.place.line, wait.holder) for wait in circle] == [
        ("self.buffer", 12, WRITER),
        ("self.model", 33, MAIN),
    ]


def test_the_holder_of_a_lock_need_not_wait_for_one():
    stacks = {
        MAIN: [LOOP, frame(12, "train_step", "with self.lock:  # shared")],
        WRITER: [frame(30, "run", "write(batch)", inside="open(path), lock")],
        (200, 200): [frame(30, "run", "write(batch)", inside="lock")],  # of another process
    }
    (wait,) = lock_waits(stacks)
    assert (wait.lock, wait.holder, wait.holds) == ("self.lock", WRITER, ())
    assert deadlock([wait]) == []


def test_a_circle_that_others_only_wait_for_is_found():
    waits = lock_waits(
        {
            (1, 5): [frame(1, "f", "with a:")],
            (100, 7): [frame(1, "f", "with b:", inside="a")],
            (100, 8): [frame(1, "f", "with a:", inside="b")],
            (100, 9): [frame(1, "f", "a.acquire(timeout=9)")],
        }
    )
    assert [wait.thread for wait in deadlock(waits[::-1])] == [(100, 8), (100, 7)]


def test_what_is_no_lock_is_not_waited_for():
    frames = {
        "file": [frame(12, "load", "with open(path) as file:")],
        "read": [frame(12, "load", "data = sock.recv(9)", inside="self.lock")],
        "inside": [frame(12, "load", "with self.pool:"), Frame("/lib/python3/socket.py", 3, "recv")],
    }
    assert lock_waits({(1, number): stack for number, stack in enumerate(frames.values())}) == []


def test_a_lock_of_python_code_waits_inside_threading():
    stack = [frame(12, "load", "with self.ready:"), Frame("/usr/lib/python3.11/threading.py", 270, "__enter__")]
    (wait,) = lock_waits({MAIN: stack})
    assert (wait.lock, wait.holder) == ("self.ready", None)


def test_the_training_is_named_first():
    groups = [
        StackGroup([frame(33, "flush", "with model:", "buffer")], 0, [WRITER]),
        StackGroup([frame(12, "train_step", "with buffer:", "model")], 0, [MAIN]),
    ]
    found = locked(Standstill(t=30.0, pid=0, quiet_s=20.0, groups=groups))
    assert found.is_deadlock and [place.line for place in found.places] == [12, 33]
    assert found.text.startswith("the training waits for buffer at train_step() train.py:12 and holds model, a thread")


LONG = ("x" * 300_000, "with " + " " * 300_000 + "x y", "with " + "x:" * 150_000 + " (", "[" * 300_000)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("source", LONG)
def test_a_line_of_any_length_is_looked_through_once(source):
    """Steps that grow with the square of its length would take hours."""
    assert lock_waits({MAIN: [frame(1, "main", source)], WRITER: [frame(2, "run", "pass", "x")]}) == []


ENTERS = ("with self.lock :", "with\tself.lock:", "ok = self.lock.acquire (timeout=3)", "with self.lock as it:  # ours")


@pytest.mark.parametrize("source", ENTERS)
def test_lines_that_enter_or_acquire(source):
    holder = [frame(2, "run", "go()", "self.lock")]
    (wait,) = lock_waits({MAIN: [frame(1, "main", source)], WRITER: holder})
    assert wait.lock == "self.lock"
    assert lock_waits({MAIN: [frame(1, "main", "without(self.lock)")], WRITER: holder}) == []


def test_who_has_called_acquire_holds_the_lock(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("def save():\n    lock.acquire()\n    slow()\n    lock.release()\n")
    inside = SourceBlocks().inside(str(file), 3)
    (wait,) = lock_waits({MAIN: [frame(2, "save", "lock.acquire()")], WRITER: [frame(3, "save", "slow()", inside)]})
    assert (wait.lock, wait.holder) == ("lock", WRITER)
