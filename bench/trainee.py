"""A training process that runs blocks of steps on request, plain or with a watcher around or beside it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench import processes

STEPS = str(Path(__file__).with_name("steps.py"))
#: a block asked for must be answered within this time and its own
DEADLINE_S = 60.0
PLAIN_COMMAND = ("{python}", "{steps}", "{requests}", "{answers}")


class Variant(NamedTuple):
    """How a training is run: ``command`` starts it, ``beside`` is started next to it. ``{python}``, ``{steps}``,
    ``{requests}``, ``{answers}``, ``{folder}`` and, beside, ``{pid}`` are filled in."""

    name: str
    command: tuple[str, ...] = PLAIN_COMMAND
    beside: tuple[str, ...] = ()


class Trainee:
    """One such process. ``block`` runs steps; ``pause`` and ``resume`` stop the watcher, not the training."""

    def __init__(self, variant: Variant) -> None:
        """Start it. Raises RuntimeError, with what it said, when it does not answer; OSError when it cannot start."""
        self.variant = variant
        self._folder = tempfile.TemporaryDirectory(prefix="tuimon-bench-")
        self._requests, self._answers = self._fifo("requests"), self._fifo("answers")
        self._unread = b""
        self._beside: subprocess.Popen[bytes] | None = None
        with open(self._path("said.txt"), "wb") as said:
            self._process = subprocess.Popen(
                self._filled(variant.command), stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=self._folder.name
            )
        try:
            self.block("0.3ms", 0.2)
        except RuntimeError:
            self.close()
            raise
        self._trainer = self._find_trainer()
        if variant.beside:
            command = self._filled(variant.beside, pid=self._trainer)
            self._beside = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def block(self, loop: str, seconds: float) -> float:
        """Median step time in ns of a block. Raises RuntimeError, with what was said, when no answer comes."""
        os.write(self._requests, f"{loop} {seconds}\n".encode())
        until = time.monotonic() + seconds + DEADLINE_S
        while time.monotonic() < until and self._process.poll() is None:
            if select.select([self._answers], [], [], 0.2)[0]:
                self._unread += os.read(self._answers, 65536)
            line, found, rest = self._unread.partition(b"\n")
            if found:
                self._unread = rest
                return float(json.loads(line)["median_ns"])
        how = f"ended with {self._process.poll()}" if self._process.poll() is not None else "did not answer"
        raise RuntimeError(f"{self.variant.name} {how}: {self._last_words()}")

    def pause(self) -> None:
        """Stop the watcher while another process has the cores."""
        processes.send(self._watchers(), signal.SIGSTOP)

    def resume(self) -> None:
        """Let the watcher go on."""
        processes.send(self._watchers(), signal.SIGCONT)

    def close(self) -> None:
        """End the training by an empty request, then the watcher; what does not end is killed."""
        self.resume()
        os.write(self._requests, b"\n")
        if self._beside:
            self._beside.send_signal(signal.SIGINT)
        for process in (self._process, self._beside):
            if process is not None:
                _end(process)
        os.close(self._requests)
        os.close(self._answers)
        self._folder.cleanup()

    def _watchers(self) -> list[int]:
        """The processes that watch: those beside the training, or above it up to what was started."""
        if self._beside:
            return [self._beside.pid]
        trainer = getattr(self, "_trainer", self._process.pid)
        family = [self._process.pid, *processes.descendants(self._process.pid)]
        training = {trainer, *processes.descendants(trainer)}
        return [pid for pid in family if pid not in training]

    def _find_trainer(self) -> int:
        """The innermost process that has steps.py in its command line."""
        for pid in reversed(processes.descendants(self._process.pid)):
            if STEPS in processes.command_line(pid):
                return pid
        return self._process.pid

    def _filled(self, command: tuple[str, ...], pid: int = 0) -> list[str]:
        known = {name: self._path(name) for name in ("requests", "answers")}
        known |= {"python": sys.executable, "steps": STEPS, "folder": self._folder.name}
        return [word.format(pid=pid, **known) for word in command]

    def _fifo(self, name: str) -> int:
        """A FIFO, opened for both directions so that nobody waits for the other side to open it."""
        os.mkfifo(self._path(name))
        return os.open(self._path(name), os.O_RDWR)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder.name, name)

    def _last_words(self) -> str:
        lines = Path(self._path("said.txt")).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        processes.send([*processes.descendants(process.pid), process.pid], signal.SIGKILL)
        process.wait()
