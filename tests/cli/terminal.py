"""A pseudo-terminal with tuimon, or another program, in its foreground."""

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

from tests.cli.command import TUIMON
from tests.waiting import until
from tuimon.sources.stacks.pyspy import find

_BECOME = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


#: What a shell does for the job in its foreground, and at its own end. SIGUSR1: it takes the terminal; SIGUSR2: ``fg``.
#: ``cat`` is another process of that job, which ends with the shell.
_SHELL = """
import os, signal, subprocess, sys

def take_foreground(*_):
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)

def start():
    os.setpgrp()
    take_foreground()

def foreground(*_):
    os.tcsetpgrp(0, job.pid)
    os.killpg(job.pid, signal.SIGCONT)

def end(*_):
    os.killpg(job.pid, signal.SIGHUP)
    os.killpg(job.pid, signal.SIGCONT)

job = subprocess.Popen(sys.argv[1:], preexec_fn=start)
cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, preexec_fn=lambda: os.setpgid(0, job.pid))
signal.signal(signal.SIGUSR1, take_foreground)
signal.signal(signal.SIGUSR2, foreground)
signal.signal(signal.SIGHUP, end)
sys.exit(job.wait())
"""


def on_terminal(
    *words: str, cwd: Path, shell: bool = False, **env: str
) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[bytes], int]]:
    """tuimon as the foreground job of a terminal of its own; gives it, or its shell, and our end of the terminal."""
    before = [sys.executable, "-c", _SHELL] if shell else []
    return program_on_terminal([*before, *TUIMON, *words], cwd=cwd, **env)


@contextlib.contextmanager
def program_on_terminal(command: list[str], *, cwd: Path, **env: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The same with any program."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, b"\x28\x00\x78\x00\x00\x00\x00\x00")
    process = subprocess.Popen(
        [sys.executable, "-c", _BECOME, *command],
        cwd=cwd,
        env={**os.environ, "TERM": "xterm-256color", "XDG_STATE_HOME": str(cwd / "state"), **env},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    try:
        yield process, ours
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)


def drained(terminal: int) -> bytes:
    """What is on the terminal by now."""
    found = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 65536):
            found += chunk
    return found


def hang_up(terminal: int) -> None:
    """Close our end of a terminal; its number stays taken."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, terminal, inheritable=False)
    os.close(null)


class Shown:
    """All that was written to a terminal so far."""

    def __init__(self, terminal: int) -> None:
        self.terminal = terminal
        self.text = b""

    def has(self, text: bytes, times: int = 1) -> bool:
        """Whether it is there, so many times."""
        self.text += drained(self.terminal)
        return self.text.count(text) >= times


def ended(process: subprocess.Popen[bytes], terminal: int) -> int:
    """Its exit code; the terminal is read meanwhile, or it would block. Says what a process does that has not ended."""
    shown = Shown(terminal)
    try:
        until(lambda: (shown.has(b""), process.poll() is not None)[1])
    except AssertionError:
        raise AssertionError(f"it did not end: {_doing(process.pid)}; last shown: {shown.text[-3000:]!r}") from None
    assert process.returncode is not None
    return process.returncode


def _doing(pid: int) -> str:
    """Where the threads of a Python process are, and its state."""
    pyspy = find()
    status = Path(f"/proc/{pid}/status").read_text().splitlines()[2]
    if pyspy is None:
        return status
    dump = subprocess.run([pyspy, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False)
    return f"{status}\n{dump.stdout}{dump.stderr}"
