"""Waiting in tests: for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds between two polls of a condition.
POLL_S = 0.02


def until(condition: Callable[[], T | None], what: str = "it", seconds: float = 30.0) -> T:
    """The first true value of ``condition``; fails after a generous deadline, naming what did not come.

    The deadline is counted in polls: on a busy machine it comes later, as what it waits for does.
    """
    for _ in range(round(seconds / POLL_S)):
        if found := condition():
            return found
        time.sleep(POLL_S)
    raise AssertionError(f"waited for {what}")


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
