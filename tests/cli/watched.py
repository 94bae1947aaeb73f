"""A tuimon in the full screen that a test may take the terminal from."""

import contextlib
import os
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.cli.command import LEAN, script
from tests.cli.terminal import Shown, hang_up, on_terminal
from tests.cli.test_run import heard
from tests.small_terminal import SmallTerminal
from tests.waiting import until
from tuimon.errors import NotALog
from tuimon.records import Exit, Notice, Record, Threads
from tuimon.sources.log.source import read_records

#: trains until it is told to go, leaves a result, and an exit code that nobody else has
TRAINING = """
import os, time
open("heard", "w").write(str(os.getpid()))
while not os.path.exists("go"):
    print("it trains", flush=True)
    time.sleep(0.02)
open("result", "w").write("whole")
raise SystemExit(5)
"""
WORDS = (*LEAN, "--interval", "0.1")
#: A window of 0.1 s is a record or more, and a write to the terminal. Textual's queue holds 30 writes, then it blocks.
WRITES = 40


def recorded(path: Path) -> list[Record]:
    """What is in a log by now."""
    try:
        return list(read_records(str(path)))
    except NotALog:  # not made, or empty as yet
        return []


class Watched(Shown):
    """A tuimon in the full screen, its terminal and its training. ``pid`` is tuimon's, also where a shell runs it."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int, folder: Path, *, shell: bool = False) -> None:
        super().__init__(terminal)
        self.process = process
        self.folder = folder
        self.pid = process.pid
        self.modes = termios.tcgetattr(terminal)  # as a shell would have left them
        until(lambda: heard(folder) and self.has(b"train.py"))
        self.training = int(heard(folder)[0])
        if shell:
            self.pid = self.job("python").pid

    def job(self, name: str) -> psutil.Process:
        """The process of this name that the shell has started."""
        (found,) = (child for child in psutil.Process(self.process.pid).children() if child.name().startswith(name))
        return found

    def hang_up(self) -> None:
        """Close our end of the terminal; its number stays taken."""
        hang_up(self.terminal)

    def records(self) -> list[Record]:
        """What is in the log by now."""
        return recorded(self.folder / "run.jsonl")

    def record_more(self, number: int) -> None:
        """Wait until the log has more than so many further records."""
        before = len(self.records())
        until(lambda: len(self.records()) > before + number)

    def goes_on_unseen(self) -> bool:
        """Whether records follow the notice that the terminal was lost."""
        records = self.records()
        lost = [at for at, record in enumerate(records) if isinstance(record, Notice) and record.source == "terminal"]
        return bool(lost) and sum(isinstance(record, Threads) for record in records[lost[0] :]) >= 3

    def is_full(self) -> bool:
        """Whether the terminal takes no more: nobody reads what is shown."""
        theirs = os.open(f"/proc/{self.pid}/fd/0", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            return not select.select([], [theirs], [], 0)[1]
        finally:
            os.close(theirs)

    def files(self) -> list[str]:
        """What tuimon has open."""
        folder = f"/proc/{self.pid}/fd"
        found = []
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"{folder}/{name}"))
        return found

    def cpu_s(self) -> float:
        """CPU that tuimon has used."""
        used = psutil.Process(self.pid).cpu_times()
        return used.user + used.system

    def let_end(self) -> None:
        """Let the training end; it must be whole, tuimon's exit code and log those of the training."""
        (self.folder / "go").touch()
        assert self.process.wait(60) == 5
        assert (self.folder / "result").read_text() == "whole"
        (end,) = [record for record in self.records() if isinstance(record, Exit)]
        assert end.exit_code == 5
        assert end.survivors == []


@contextlib.contextmanager
def watched(folder: Path, *options: str, log: bool = True, shell: bool = False) -> Iterator[Watched]:
    """``shell``: ``process`` is a shell, and tuimon its job."""
    path = script(folder, TRAINING)
    words = (*WORDS, *options, *(("--log", "run.jsonl") if log else ()))
    with on_terminal("run", *words, "--", sys.executable, path, cwd=folder, shell=shell) as (process, terminal):
        try:
            yield Watched(process, terminal, folder, shell=shell)
        finally:
            (folder / "go").touch()  # whatever happened, it ends


def picture(run: Watched) -> str:
    """What the terminal shows."""
    run.has(b"")
    screen = SmallTerminal(120, 40)
    screen.feed(run.text)
    return "\n".join(screen.display)
