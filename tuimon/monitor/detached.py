"""A command of the user's beside the training: in a session of its own, within a time, its output bounded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import IO, NamedTuple

#: How long a command may take (s): far longer than sending a message, and no training waits for it.
LIMIT_S = 60.0
#: How much of what it prints is kept, in bytes.
OUTPUT_BYTES = 2000


class Outcome(NamedTuple):
    """How a command ended."""

    words: tuple[str, ...]
    exit_code: int | None  # None: it could not be started, or took too long
    output: str = ""  # what it printed, cut; empty where that went to our own stderr
    trouble: str = ""


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
        with tempfile.TemporaryFile() as stdin:  # no pipe: a command need not read it, and we may end before it does
            stdin.write(self._payload)
            stdin.seek(0)
            # stdout of headless tuimon is the training's
            out = sys.__stderr__.fileno() if self._inherit and sys.__stderr__ is not None else subprocess.PIPE
            process = subprocess.Popen(
                self.words, stdin=stdin, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        late = threading.Event()
        timer = threading.Timer(self._limit_s, _end, (process, late))
        timer.daemon = True
        timer.start()
        output = _first_bytes(process.stdout) if process.stdout is not None else ""
        code = process.wait()
        timer.cancel()
        if late.is_set():
            return Outcome(self.words, None, output, f"was ended after {self._limit_s:.0f} s")
        return Outcome(self.words, code, output)


def _end(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError):  # its session is its group: what it has started ends as well
        os.killpg(process.pid, signal.SIGKILL)


def _first_bytes(stream: IO[bytes]) -> str:
    """The first bytes of a stream; the rest is read and dropped, so that nobody blocks."""
    kept = b""
    with stream:
        while part := os.read(stream.fileno(), 1 << 16):
            kept += part[: OUTPUT_BYTES - len(kept)]
    return kept.decode("utf-8", "replace")
