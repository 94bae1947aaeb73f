"""StackSource when things go wrong or are odd: real py-spy, real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest

from tests.sources.programs import running
from tests.sources.stacks.sampling import pyspies, reading, trainer
from tuimon.sources.stacks.pyspy import errors, recorder

if recorder.find() is None:
    pytest.skip("py-spy is not installed", allow_module_level=True)

WAIT = "import threading; print('up', flush=True); threading.Event().wait()"


def test_a_target_that_execs_in_the_middle_of_a_window(tmp_path: Path) -> None:
    after = tmp_path / "after.py"
    after.write_text("import time\ndef afterwards():\n    while True: time.sleep(0.001)\nafterwards()\n")
    source = f"""
import os, sys
def before():
    print("up", flush=True)
    sys.stdin.readline()
    os.execv(sys.executable, [sys.executable, {str(after)!r}])
before()
"""
    with running(tmp_path, source) as process, reading(trainer(process.pid), max_cpu_ratio=1.0) as reader:
        reader.until(lambda it: "before" in it.functions(), "a window of the old program")
        reader.until(lambda _: pyspies(), "another window")
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        reader.until(lambda it: "afterwards" in it.functions(), "a window of the new program")


def test_a_pyspy_that_was_stopped_is_killed_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder.Recording, "STOP_TIMEOUT_S", 0.3)
    with running(tmp_path, WAIT) as process, reading(trainer(process.pid)) as reader:
        reader.until(lambda _: pyspies(), "py-spy to start")
        os.kill(pyspies()[0], signal.SIGSTOP)
        reader.until(lambda it: it.lost, "its window to be given up")
        reader.until(lambda it: it.stacks, "the next one")


def test_a_pyspy_that_was_killed_counts_as_a_lost_window(tmp_path: Path) -> None:
    with running(tmp_path, WAIT) as process, reading(trainer(process.pid)) as reader:
        reader.until(lambda _: pyspies(), "py-spy to start")
        os.kill(pyspies()[0], signal.SIGKILL)
        reader.until(lambda it: it.lost and it.stacks, "a lost window, then a good one")
        assert reader.lost[0].pid == process.pid
        assert reader.notices == []


def test_a_pid_that_comes_back_is_another_process(tmp_path: Path) -> None:
    """The window of the old one is no longer wanted, the new one begins with short windows again."""
    with running(tmp_path, WAIT) as process, reading(trainer(process.pid), max_cpu_ratio=1.0) as reader:
        reader.until(lambda it: len(it.stacks) >= 2, "two windows")
        table = reader.source.table
        old = table.start_ticks(process.pid)
        assert old is not None
        table.publish({process.pid: old + 1}, {process.pid: "trainer"})
        reader.until(lambda it: len(it.stacks) >= 4, "two more")
        assert reader.stacks[3].window_s < 1.9 or reader.stacks[2].window_s < 1.9


def test_who_holds_the_gil(tmp_path: Path) -> None:
    source = """
import sys, threading
def hog():
    while True: sum(range(1000))
thread = threading.Thread(target=hog, daemon=True)
thread.start()
print("up", flush=True)
sys.stdin.readline()
print(thread.native_id, flush=True)
threading.Event().wait()
"""
    with running(tmp_path, source) as process, reading(trainer(process.pid)) as reader:
        reader.until(lambda it: it.gil and it.gil[-1].threads, "looks at the GIL")
        assert process.stdin and process.stdout
        process.stdin.write("\n")
        process.stdin.flush()
        hog = int(process.stdout.readline())
        window = reader.gil[-1]
        assert window.pid == process.pid
        assert window.samples >= 30  # of 0.6 s; how many py-spy came to take, the machine's load decides
        assert [thread.tid for thread in window.threads] == [hog]  # the other one waits without it
        assert [(each.tid, each.function) for each in window.functions] == [(hog, "hog")]
        assert len(msgspec.json.encode(window)) < 500


def test_a_free_threaded_python_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuimon.proc.processes.program_name", lambda pid: "python3.14t")
    for said in (
        "Error: Failed to find a python interpreter in the .data section",
        "Error: Unsupported version of Python: 3.14.0t",
        "Error: Failed to find python version from target process",
    ):
        problem = errors.explain(said, 1)
        assert problem.message == "no stack samples: py-spy cannot read free-threaded Python (python3.14t)"
        assert "tuimon run" in (problem.hint or "")
