"""``tuimon run --headless``: exit codes, signals and output are the target's own."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli.command import LEAN, TUIMON, script, tuimon
from tuimon.records import Exit, Header, Process
from tuimon.sources.log.reader import read_log

#: writes its pid, then what it hears
LISTENER = """
import os, signal, sys, time
heard = open("heard", "a", buffering=1)
signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM", file=heard))
heard.write(f"{os.getpid()}\\n")
try:
    while "SIGTERM" not in open("heard").read():
        time.sleep(0.02)
    raise SystemExit(21)
except KeyboardInterrupt:
    print("SIGINT", file=heard)
    raise SystemExit(22)
"""


def heard(folder: Path) -> list[str]:
    path = folder / "heard"
    return path.read_text().split() if path.exists() else []


def test_an_allocation_that_failed_is_named_without_reading_the_output(tmp_path: Path) -> None:
    text = "import torch\nraise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0')\n"
    path = script(tmp_path, text)
    done = tuimon("run", "--headless", "--log", "x.jsonl", *LEAN, "--", sys.executable, path, cwd=tmp_path)
    own = " ".join(line.partition("] ")[2].strip() for line in done.stderr.splitlines() if "[tuimon" in line)
    assert "ended with exit code 1 at train.py:2: torch.OutOfMemoryError: CUDA out of memory." in own
    assert "the training ended as a GPU had no room for 9.00 GiB: OutOfMemoryError at train.py:2" in own


def test_stdio_is_untouched(tmp_path: Path) -> None:
    text = "import sys; sys.stdout.buffer.write(bytes(range(256))); print(sys.argv[1:], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-m", "tuimon", "run", *LEAN, sys.executable, script(tmp_path, text), "--lines", "-x"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == bytes(range(256))
    assert b"['--lines', '-x']\n" in done.stderr
    others = [line for line in done.stderr.splitlines() if not line.startswith(b"[tuimon")]
    assert others == [b"['--lines', '-x']"]
    assert b"\x1b" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_leave_the_exit_code_and_are_closed_for_the_training_too(closed: str, tmp_path: Path) -> None:
    text = """
        import os, sys
        there = [number for number in range(3) if os.path.exists(f"/proc/self/fd/{number}")]
        print(there, file=open(sys.argv[1], "w"))
        raise SystemExit(5)
    """
    path = script(tmp_path, textwrap.dedent(text))
    for name, words in {"plain": (), "watched": (*TUIMON, "run", *LEAN, "--log", "l.jsonl", "--")}.items():
        line = f"exec {shlex.join([*words, sys.executable, path, name])} {closed}"
        shell, null = ["sh", "-c", line], subprocess.DEVNULL
        done = subprocess.run(shell, cwd=tmp_path, stdin=null, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 5 and "Traceback" not in done.stderr
    assert (tmp_path / "watched").read_text() == (tmp_path / "plain").read_text()
    assert any(isinstance(record, Exit) for record in read_log(str(tmp_path / "l.jsonl")))


def test_survivors_are_named(tmp_path: Path) -> None:
    text = "import os, time\nif os.fork() == 0:\n os.setsid(); os.close(1); os.close(2); time.sleep(600)"
    done = tuimon("run", *LEAN, "--log", "l.jsonl", "--", sys.executable, script(tmp_path, text), cwd=tmp_path)
    end = next(record for record in read_log(str(tmp_path / "l.jsonl")) if isinstance(record, Exit))
    for pid in end.survivors:
        os.kill(pid, signal.SIGKILL)
    assert done.returncode == 0
    assert len(end.survivors) == 1
    assert f"still running: {end.survivors[0]}" in done.stderr


def test_a_log_that_cannot_be_written_stops_before_the_run(tmp_path: Path) -> None:
    path = script(tmp_path, "open('ran', 'w')")
    for log in ("no/such/folder/x.jsonl", "/dev/full", path):
        done = tuimon("run", *LEAN, "--log", log, "--", sys.executable, path, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("tuimon: ")
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "ran").exists()


def test_no_secret_of_a_command_line_is_in_the_log(tmp_path: Path) -> None:
    path = script(tmp_path, "import time; time.sleep(1)")
    words = (path, "--api-key", "hush1", "--token=hush2", "db://me:hush3@host", "--password", "hush4" * 500)
    tuimon("run", *LEAN, "--log", "l.jsonl", "--", sys.executable, *words, cwd=tmp_path)
    text = (tmp_path / "l.jsonl").read_text()
    assert "hush" not in text
    header, *others = read_log(str(tmp_path / "l.jsonl"))
    command = [sys.executable, path, "--api-key", "***", "--token=***", "db://me:***@host", "--password", "***"]
    assert isinstance(header, Header)
    assert header.command == command
    assert any(isinstance(record, Process) and record.command == command for record in others)
    assert stat.S_IMODE((tmp_path / "l.jsonl").stat().st_mode) == 0o600


def test_an_earlier_log_stays_unless_force_is_given(tmp_path: Path) -> None:
    path = script(tmp_path, "open('ran', 'w')")
    words = ("run", *LEAN, "--log", "l.jsonl", "--", sys.executable, path)
    assert tuimon(*words, cwd=tmp_path).returncode == 0
    (tmp_path / "ran").unlink()
    before = (tmp_path / "l.jsonl").read_bytes()
    done = tuimon(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert "--force" in done.stderr
    tuimon("run", "--force", "--log", "l.jsonl", "--", no_program(tmp_path), cwd=tmp_path)
    assert (tmp_path / "l.jsonl").read_bytes() == before
    assert not (tmp_path / "ran").exists()
    assert tuimon("run", "--force", *words[1:], cwd=tmp_path).returncode == 0
    assert (tmp_path / "l.jsonl").read_bytes() != before


def no_program(folder: Path) -> str:
    """A program that the system does not start."""
    program = folder / "x"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    return str(program)


def test_nothing_is_left_when_the_command_does_not_start(tmp_path: Path) -> None:
    done = tuimon("run", "--log", "l.jsonl", no_program(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    assert "interpreter is missing" in done.stderr
    assert not (tmp_path / "l.jsonl").exists()
