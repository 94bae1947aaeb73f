"""Python programs that find torch imported: they are forked from a process that has done so.

Importing it takes 2 s of CPU, and the first optimizer of a process 2 s more. For tests of what a training does, not of
how it starts: those take an interpreter of their own.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


class WarmProgram:
    """A program that runs: its exit code, and its pipes where they were asked for."""

    def __init__(self, words: list[str], env: dict[str, str], cwd: Path | None, streams: list[int]) -> None:
        """Start it; ``streams``: its standard streams."""
        self.returncode: int | None = None
        self._received = b""
        self._answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        request = json.dumps({"words": words, "env": env, "cwd": os.fspath(cwd or os.getcwd())}).encode()
        with theirs:
            socket.send_fds(_server(), [len(request).to_bytes(4, "little")], [theirs.fileno(), *streams])
            _server().sendall(request)
        self.pid = int(self._line(60.0) or 0)
        assert self.pid, "torch cannot be imported"

    def poll(self) -> int | None:
        """Its exit code, -n for signal n; None while it runs."""
        return self.wait(0.0)

    def wait(self, timeout_s: float = 100.0) -> int | None:
        """Its exit code, once it has ended; None when that takes longer."""
        if self.returncode is None and (line := self._line(timeout_s)):
            self.returncode = int(line)
        return self.returncode

    def kill(self) -> None:
        """End it, and wait for that."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self._answers.close()

    def _line(self, timeout_s: float) -> bytes:
        """The next line of the answer; empty when it does not come in time, or never will."""
        while b"\n" not in self._received and select.select([self._answers], [], [], timeout_s)[0]:
            received = self._answers.recv(100)
            if not received:
                return b""
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
        return line


def warm_python(*words: str, env: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``SCRIPT ARGUMENTS...`` or ``-c CODE ARGUMENTS...`` to its end."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(os.devnull) as null:
        program = WarmProgram(list(words), env, cwd, [null.fileno(), out.fileno(), err.fileno()])
        try:
            assert program.wait() is not None, f"{words[0]} runs on"
        finally:
            program.kill()
        out.seek(0)
        err.seek(0)
        assert program.returncode is not None
        return subprocess.CompletedProcess(list(words), program.returncode, out.read(), err.read())


@cache
def _server() -> socket.socket:
    """The connection to the process that has imported torch: one for each process of the tests."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    env = {key: value for key, value in os.environ.items() if not key.startswith("TUIMON") and key != "PYTHONPATH"}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(_ROOT / "tests" / "warm_torch" / "server.py"), str(theirs.fileno())],
            env=env,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        process.wait(30)

    atexit.register(end)
    return ours
