"""Details on demand: the code around a line, a dump of a real process, and why there is none."""

import os
import time

import pytest

from tests.session.records import process
from tests.sources.programs import running
from tests.waiting import until
from tuimon.proc import procfs
from tuimon.proc.processes import start_unix_s
from tuimon.sources.stacks.closeup import AROUND_LINES, CloseUp
from tuimon.sources.stacks.pyspy import recorder

WAITS = """
import sys, threading
def wait_for_end():
    sys.stdin.read()
threading.Thread(target=threading.Event().wait, name="still [b]", daemon=True).start()
print("ready", flush=True)
wait_for_end()
"""


def us():
    """This process, as a record has it; the files of these tests are younger, and would not be shown."""
    ticks = procfs.start_ticks(os.getpid())
    return process(os.getpid(), start_unix_s=round(start_unix_s(ticks), 2))


def code(file, line):
    return CloseUp().code(str(file), line, us(), time.time())


def test_the_code_around_a_line(tmp_path):
    file = tmp_path / "a.py"
    file.write_bytes(b"".join(b"\tline %d \xff\x1b[31m\n" % n for n in range(1, 31)))
    lines = code(file, 12)
    assert [n for n, _ in lines] == list(range(12 - AROUND_LINES, 12 + AROUND_LINES + 1))
    assert lines[0][1] == "    line 7 \ufffd"
    assert [n for n, _ in code(file, 2)] == [1, 2, 3, 4, 5, 6, 7]
    assert [n for n, _ in code(file, 30)][-1] == 30


def test_no_code(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    os.mkfifo(tmp_path / "pipe.py")
    closeup = CloseUp()
    assert code(file, 2) == code(file, 0) == []
    assert closeup.code(str(tmp_path / "gone.py"), 1, us()) == []
    assert closeup.code(str(tmp_path / "pipe.py"), 1, us()) == []
    assert closeup.code("<string>", 1, us()) == closeup.code("a\0b", 1, us()) == closeup.code("", 1, us()) == []


def test_code_that_was_changed_after_the_start_is_not_shown(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    assert CloseUp().code(str(file), 1, us(), time.time() - 3600) == []
    assert CloseUp().code(str(file), 1, us(), time.time()) == [(1, "x = 1")]


def test_a_replay_looks_at_nothing(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    closeup = CloseUp(live=False)
    assert closeup.code(str(file), 1, us()) == []
    assert "played back" in closeup.dump(os.getpid()).trouble


@pytest.mark.skipif(recorder.find() is None, reason="needs py-spy")
def test_a_dump_of_a_real_process(tmp_path):
    with running(tmp_path, WAITS) as program:
        dump = until(lambda: (found := CloseUp().dump(program.pid)).threads and found, "a dump")
        threads = {thread.name: thread for thread in dump.threads}
        assert set(threads) == {"MainThread", "still [b]"}
        main = threads["MainThread"]
        assert main.tid == program.pid
        assert [frame.function for frame in main.frames][:2] == ["wait_for_end", "<module>"]
        assert (main.frames[0].file, main.frames[0].line) == (str(tmp_path / "program.py"), 4)
        assert not threads["still [b]"].owns_gil


@pytest.mark.skipif(recorder.find() is None, reason="needs py-spy")
def test_a_dump_of_a_process_that_is_gone(tmp_path):
    with running(tmp_path, WAITS) as program:
        pid = program.pid
    dump = CloseUp().dump(pid)
    assert dump.threads == ()
    assert dump.trouble.startswith("no dump")


def test_without_py_spy_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(recorder, "find", lambda: None)
    dump = CloseUp().dump(os.getpid())
    assert dump.trouble == "no dump: py-spy was not found"
    assert "pip install" in dump.hint
