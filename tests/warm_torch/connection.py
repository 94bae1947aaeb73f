"""The connection of a process of the tests to the one that has imported torch for it."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
from pathlib import Path
from threading import Lock

_SCRIPT = Path(__file__).with_name("server.py")


class Server:
    """Starts ``server.py`` at first use, and anew where it has died; for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def hand_over(self, handles: list[int]) -> None:
        """Have a program forked with these: the connection it is told on what to run, and its standard streams.

        Each goes in one message, so that requests of several threads cannot mix.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._connection is not None
            socket.send_fds(self._connection, [b"."], handles)

    def end(self) -> None:
        """End it; programs that run go on."""
        with self._lock:
            if self._process is not None and self._connection is not None:
                self._connection.close()
                self._process.wait(30)
                self._process = self._connection = None

    def _start(self) -> None:
        if self._connection is None:
            atexit.register(self.end)
        else:
            self._connection.close()
        env = {key: value for key, value in os.environ.items() if not key.startswith("TUIMON") and key != "PYTHONPATH"}
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_SCRIPT), str(theirs.fileno())],
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
