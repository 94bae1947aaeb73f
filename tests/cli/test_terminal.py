"""On a pseudo-terminal: the full screen, its keys, its output and its end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.command import LEAN, script
from tests.cli.terminal import Shown, drained, ended, on_terminal
from tests.cli.test_run import LISTENER, heard
from tests.session import records
from tests.sources.log.literal_log import write
from tests.waiting import alive, until
from tuimon.records import Exit

#: What a full-screen program sends at its start, to have a screen of its own.
_FULL_SCREEN = b"\x1b[?1049h"


def test_a_flood_of_output_does_not_fill_the_disk(tmp_path: Path) -> None:
    """The full screen keeps the output in a file: its old part is given back while it grows."""
    flood = "import os, sys, time\nblock = b'x' * 1023 + b'\\n'\nfor _ in range(300): os.write(1, block * 1024)\n"
    path = script(tmp_path, flood + "open('heard', 'w').write(str(os.getpid()))\ntime.sleep(600)")
    with on_terminal("run", *LEAN, "--", sys.executable, path, cwd=tmp_path) as (_, terminal):
        pid = int(until(lambda: (drained(terminal), heard(tmp_path))[1])[0])
        try:
            (output,) = (tmp_path / "state" / "tuimon" / "runs").iterdir()
            assert output.stat().st_size == 300 * 1024 * 1024
            until(lambda: (drained(terminal), output.stat().st_blocks * 512 < 70 * 1024 * 1024)[1])
        finally:
            os.kill(pid, signal.SIGKILL)


def test_kill_9_of_the_full_screen_leaves_the_target_running(tmp_path: Path) -> None:
    path = script(tmp_path, LISTENER)
    with on_terminal("run", *LEAN, "--", sys.executable, path, cwd=tmp_path) as (process, terminal):
        pid = int(until(lambda: (drained(terminal), heard(tmp_path))[1])[0])
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # by now its terminal is closed, too
    assert alive(pid)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not alive(pid))
    assert heard(tmp_path)[1:] == ["SIGTERM"]


def test_a_dumb_terminal_is_headless(tmp_path: Path) -> None:
    path = script(tmp_path, "print('as', 'ever')")
    with on_terminal("run", *LEAN, "--", sys.executable, path, cwd=tmp_path, TERM="dumb") as (process, terminal):
        shows = Shown(terminal).has
        until(lambda: shows(b"as ever") and shows(b"[tuimon] ended with exit code 0") and process.poll() is not None)
    assert process.returncode == 0


@pytest.mark.trust
@pytest.mark.parametrize("typed", [b"", b"\xff", "é".encode("latin-1")])
def test_view_replays_a_log_and_q_leaves_whatever_was_typed(tmp_path: Path, typed: bytes) -> None:
    log = write(tmp_path / "x.jsonl", records.header(), records.process(), Exit(t=9.0, pid=100, exit_code=3))
    with on_terminal("view", str(log), cwd=tmp_path) as (process, terminal):
        shows = Shown(terminal).has
        until(lambda: shows(b"ENDED"))
        os.write(terminal, typed)
        until(lambda: (os.write(terminal, b"q"), shows(b"\x1b[?1049l"))[1])
        assert ended(process, terminal) == 0
