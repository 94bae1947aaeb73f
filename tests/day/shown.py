"""The two ways to run ``tuimon run``: headless, and in the full screen on a terminal of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bench.terminal import Terminal

_RUN = (sys.executable, "-m", "tuimon", "run")


class Shown(Protocol):
    """A run of tuimon; ``pid`` is the monitor's."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""

    def pass_time(self, seconds: float) -> None:
        """Do what a terminal does meanwhile."""

    def leave(self) -> None:
        """The training has ended: close what stays open."""

    def close(self) -> None:
        """End what is left of it."""


class Headless:
    """Its lines go to ``said.txt`` in the folder."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        with open(folder / "said.txt", "wb") as said:
            self._process = subprocess.Popen(
                [*_RUN, "--headless", *words],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    def leave(self) -> None:
        """It ends by itself."""

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class FullScreen:
    """120 columns, 40 lines; what is drawn is read and thrown away."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        variables = [f"{name}={value}" for name, value in environment.items()]
        self._terminal = Terminal(["env", *variables, *_RUN, *words], cwd=os.getcwd())
        self.pid = self._terminal.pid  # env replaces itself

    def poll(self) -> int | None:
        return self._terminal.poll()

    def pass_time(self, seconds: float) -> None:
        self._terminal.drain_for(seconds)

    def leave(self) -> None:
        self._terminal.press("q")

    def close(self) -> None:
        self._terminal.close()
