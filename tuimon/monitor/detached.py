"""A command of the user's beside the training: in a session of its own, within a time, its output bounded."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import IO, NamedTuple

from tuimon.launch.candidates import processes_with

#: How long a command may take (s): far longer than sending a message, and no training waits for it.
LIMIT_S = 60.0
#: How much of what it prints is kept, in bytes.
OUTPUT_BYTES = 2000
#: How much is read of what stands in the pipe when it has ended, in bytes: as much as a pipe can hold.
_LAST_BYTES = 1 << 20
#: How often the end of a command that prints nothing is looked for (s).
_LOOK_S = 0.1
#: How long the end of what was killed is waited for (s): the kernel may hold it, as on a dead file server.
_KILLED_S = 5.0
#: In the environment of a command and of all that it starts, whatever sessions they make.
_MARK = "TUIMON_COMMAND"
_NUMBERS = itertools.count()


class Outcome(NamedTuple):
    """How a command ended."""

    words: tuple[str, ...]
    exit_code: int | None  # None: it could not be started, or took too long
    output: str = ""  # its output, cut; empty if that went to our own stderr
    trouble: str = ""
    left: int = 0  # processes that it has started and that go on without it


class Detached:
    """Runs one command on a thread; ``outcome`` is there once it has ended."""

    def __init__(self, words: Sequence[str], payload: bytes, inherit: bool, limit_s: float = LIMIT_S) -> None:
        """``payload``: its stdin; ``inherit``: what it prints goes to our stderr."""
        self.words = tuple(words)
        self.outcome: Outcome | None = None
        self._payload = payload
        self._inherit = inherit
        self._limit_s = limit_s
        self._thread = threading.Thread(target=self._run, name="tuimon-command", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for its end, for so long."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self.outcome = self._ended()
        except (OSError, ValueError) as error:
            self.outcome = Outcome(self.words, None, trouble=f"could not be started: {error}")

    def _ended(self) -> Outcome:
        mark = f"{os.getpid()}-{next(_NUMBERS)}"
        with tempfile.TemporaryFile() as stdin:  # no pipe: a command need not read it, and we may end before it does
            stdin.write(self._payload)
            stdin.seek(0)
            # stdout of headless tuimon is the training's
            out = sys.__stderr__.fileno() if self._inherit and sys.__stderr__ is not None else subprocess.PIPE
            process = subprocess.Popen(
                self.words,
                stdin=stdin,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, _MARK: mark},
            )
        until_s = time.monotonic() + self._limit_s
        output = _first_bytes(process, process.stdout, until_s) if process.stdout is not None else ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(until_s - time.monotonic(), 0.0))
            return Outcome(self.words, process.returncode, output, left=len(processes_with(_MARK, mark)))
        left = _end(process, mark)
        return Outcome(self.words, None, output, f"was ended after {self._limit_s:.0f} s", left)


def _end(process: subprocess.Popen[bytes], mark: str) -> int:
    """Kill its session, which is its group, and what it has started in sessions of their own; how many are left."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    until_s = time.monotonic() + _KILLED_S
    while (left := processes_with(_MARK, mark)) and time.monotonic() < until_s:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
        time.sleep(_LOOK_S)
    process.poll()
    return len(left)


def _first_bytes(process: subprocess.Popen[bytes], stream: IO[bytes], until_s: float) -> str:
    """The first bytes that it prints until its end; the rest is read and dropped, so that nobody blocks.

    Processes that it has started may hold the stream open for longer; nobody waits for them.
    """
    kept, more = b"", _LAST_BYTES
    with stream, select.epoll() as readable:
        readable.register(stream, select.EPOLLIN)
        while more > 0:
            over = process.poll() is not None or time.monotonic() >= until_s  # earlier output is read
            if readable.poll(0.0 if over else _LOOK_S):
                part = os.read(stream.fileno(), 1 << 16)
                if not part:
                    break
                kept += part[: OUTPUT_BYTES - len(kept)]
                more -= len(part) if over else 0
            elif over:
                break
    return kept.decode("utf-8", "replace")
