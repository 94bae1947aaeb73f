"""Python programs that find torch imported: they are forked from a process that has done so.

Importing it takes 2 s of CPU, and the first optimizer of a process 2 s more. For tests of what a training does, not of
how it starts: those take an interpreter of their own.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Lock

_SCRIPT = Path(__file__).with_name("server.py")


class Server:
    """Starts ``server.py`` at first use, and anew where it has died; for any number of threads."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: socket.socket | None = None

    def hand_over(self, handles: list[int]) -> None:
        """Have a program forked with these: the connection it is told on what to run, and its standard streams.

        Each goes in one message, so that requests of several threads cannot mix.
        """
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self._start()
            assert self.connection is not None
            socket.send_fds(self.connection, [b"."], handles)

    def end(self) -> None:
        """End it; programs that run go on."""
        with self.lock:
            if self.process is not None and self.connection is not None:
                self.connection.close()
                self.process.wait(30)
                self.process = self.connection = None

    def _start(self) -> None:
        if self.connection is None:
            atexit.register(self.end)
        else:
            self.connection.close()
        env = {key: value for key, value in os.environ.items() if not key.startswith("TUIMON") and key != "PYTHONPATH"}
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(_SCRIPT), str(theirs.fileno())],
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )


_SERVER = Server()


class WarmProgram:
    """A program that runs: its exit code, and its pipes where they were asked for."""

    def __init__(self, words: list[str], env: dict[str, str], cwd: Path | None, streams: list[int]) -> None:
        """Start it; ``streams``: its standard streams."""
        self.returncode: int | None = None
        self.received = b""
        request = json.dumps({"words": words, "env": env, "cwd": os.fspath(cwd or os.getcwd())}).encode()
        self.answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                _SERVER.hand_over([theirs.fileno(), *streams])
            self.answers.sendall(request)
            self.answers.shutdown(socket.SHUT_WR)
            self.pid = int(self._line(100.0) or 0)
            assert self.pid, "torch cannot be imported"
        except BaseException:
            self.answers.close()
            raise

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
        self.answers.close()

    def _line(self, timeout_s: float) -> bytes:
        """The next line of the answer; empty when it does not come in time, or never will."""
        while b"\n" not in self.received and select.select([self.answers], [], [], timeout_s)[0]:
            received = self.answers.recv(100)
            if not received:
                return b""
            self.received += received
        line, _, self.received = self.received.partition(b"\n")
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
