"""The code around a line, and why there is none."""

import os
import time

from tests.session.records import process
from tuimon.proc import procfs
from tuimon.proc.processes import start_unix_s
from tuimon.sources.stacks.closeup import AROUND_LINES, CloseUp


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


def test_code_that_was_changed_after_the_start_is_not_shown(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    assert CloseUp().code(str(file), 1, us(), time.time() - 3600) == []
    assert CloseUp().code(str(file), 1, us(), time.time()) == [(1, "x = 1")]
