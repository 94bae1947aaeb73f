"""Waiting in tests: for a condition, never for a time."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds between two polls of a condition.
POLL_S = 0.02


class Clock:
    """Seconds that a test sets."""

    def __init__(self, now_s: float = 100.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def until(condition: Callable[[], T | None], what: str = "it", seconds: float = 30.0) -> T:
    """The first true value of ``condition``; fails after a generous deadline, naming what did not come.

    The deadline is counted in what the machine leaves to one more process: where 20 want its 2 cores, each gets a tenth
    of a core, and what is waited for takes ten times as long.
    """
    left_s = seconds
    while left_s > 0:
        if found := condition():
            return found
        time.sleep(POLL_S)
        left_s -= POLL_S * min(1.0, (os.cpu_count() or 1) / max(os.getloadavg()[0], 1.0))
    raise AssertionError(f"waited for {what}")


@contextmanager
def child_process(*words: str, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that is killed in the end."""
    with subprocess.Popen(words, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
