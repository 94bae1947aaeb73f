"""A command on a pseudo-terminal of its own, whose output is read and timed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

from bench import processes

ENTER_SCREEN = b"\x1b[?1049h"


class Terminal:
    """A running command and the screen it draws on; ``start_s`` is when it was started (``time.monotonic``)."""

    def __init__(self, command: list[str], *, cwd: str | Path, columns: int = 120, lines: int = 40) -> None:
        self._handle, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment.pop("NO_COLOR", None)
        environment.pop(
            "PYTHONDONTWRITEBYTECODE", None
        )  # what is installed has its bytecode; the first start writes it
        self.start_s = time.monotonic()
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env=environment,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  (this process has no other threads)
        )
        os.close(theirs)
        self.pid = self._process.pid

    def read(self, timeout_s: float) -> bytes:
        """What was drawn within ``timeout_s``, as soon as there is something; b"" when there was nothing."""
        ready, _, _ = select.select([self._handle], [], [], timeout_s)
        if not ready:
            return b""
        try:
            return os.read(self._handle, 65536)
        except OSError:  # EIO: nobody holds the other side any more
            return b""

    def drain_for(self, seconds: float) -> int:
        """Read on for a while, as a terminal does; returns the bytes drawn."""
        until = time.monotonic() + seconds
        drawn = 0
        while (left := until - time.monotonic()) > 0:
            drawn += len(self.read(left))
        return drawn

    def wait_for(self, wanted: bytes, timeout_s: float) -> float | None:
        """Seconds from the start until ``wanted`` was drawn on the app's own screen; None when it was not."""
        seen = b""
        while time.monotonic() - self.start_s < timeout_s:
            seen += self.read(0.05)
            entered = seen.find(ENTER_SCREEN)
            if entered >= 0 and wanted in seen[entered:]:
                return time.monotonic() - self.start_s
            if self._process.poll() is not None:
                return None
        return None

    def press(self, keys: str) -> None:
        """Type on it."""
        os.write(self._handle, keys.encode())

    def poll(self) -> int | None:
        """The command's exit code; None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """End the command and everything it started."""
        family = [self.pid, *processes.descendants(self.pid)]
        processes.send(family, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.close(self._handle)
        self._process.wait()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
