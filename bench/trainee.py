"""A training process that runs blocks of steps on request, plain or with a watcher around or beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench import processes

STEPS = str(Path(__file__).with_name("steps.py"))
DEADLINE_S = 60.0


class Variant(NamedTuple):
    """How a training is run: ``prefix`` goes before its command, ``options`` after it, ``beside`` is started with
    its pid once it runs ("{pid}" and "{folder}" are filled in)."""

    name: str
    prefix: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


class Trainee:
    """One such process. ``block`` runs steps; ``pause`` and ``resume`` stop the watcher, not the training."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self._folder = tempfile.TemporaryDirectory(prefix="tuimon-bench-")
        prefix = self._filled(variant.prefix, pid=0)
        self._process = subprocess.Popen(
            [*prefix, sys.executable, STEPS, *variant.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(self._path("stderr.txt"), "wb"),  # noqa: SIM115  (the child's own)
            text=True,
            cwd=self._folder.name,
        )
        self.block("0.4ms", 0.2)
        self._trainer = self._find_trainer()
        self._beside = self._start_beside()

    def block(self, loop: str, seconds: float) -> float:
        """Median step time in ns of a block. Raises RuntimeError, with what it said, when the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{loop} {seconds}\n")
            self._process.stdin.flush()
            while line := self._process.stdout.readline():
                if line.startswith("{"):  # a watcher may print lines of its own
                    return float(json.loads(line)["median_ns"])
        except BrokenPipeError:
            pass
        raise RuntimeError(f"{self.variant.name} ended: {self._last_words()}")

    def pause(self) -> None:
        """Stop the watcher while another process has the cores."""
        processes.send(self._watchers(), signal.SIGSTOP)

    def resume(self) -> None:
        """Let the watcher go on."""
        processes.send(self._watchers(), signal.SIGCONT)

    def close(self) -> None:
        """End the training by the end of its input, then the watcher."""
        self.resume()
        if self._process.stdin:
            self._process.stdin.close()
        if self._beside:
            self._beside.send_signal(signal.SIGINT)
        for process in (self._process, self._beside):
            if process is None:
                continue
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                processes.send([*processes.descendants(process.pid), process.pid], signal.SIGKILL)
                process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._folder.cleanup()

    def _watchers(self) -> list[int]:
        if self._beside:
            return [self._beside.pid]
        if self._process.pid == self._trainer:
            return []
        family = [self._process.pid, *processes.descendants(self._process.pid)]
        training = {self._trainer, *processes.descendants(self._trainer)}
        return [pid for pid in family if pid not in training]

    def _find_trainer(self) -> int:
        """The process that runs steps.py itself, below whatever started it."""
        for pid in [*processes.descendants(self._process.pid)[::-1], self._process.pid]:
            if self._runs_steps(pid):
                return pid
        return self._process.pid

    @staticmethod
    def _runs_steps(pid: int) -> bool:
        return processes.command_line(pid)[1:2] == [STEPS]

    def _start_beside(self) -> subprocess.Popen[bytes] | None:
        if not self.variant.beside:
            return None
        command = self._filled(self.variant.beside, pid=self._trainer)
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _filled(self, command: tuple[str, ...], pid: int) -> list[str]:
        return [word.format(pid=pid, folder=self._folder.name) for word in command]

    def _path(self, name: str) -> str:
        return os.path.join(self._folder.name, name)

    def _last_words(self) -> str:
        lines = Path(self._path("stderr.txt")).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
