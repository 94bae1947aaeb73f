"""Holds the hooks for a monitor: when it is gone without a word, they are undone as if it had withdrawn them.

Only hooks that a monitor has brought in are held; those of ``tuimon run`` are the run's own.
"""

import time

from .. import runtime
from ..ring.control_words import ABANDONED_NS, is_alive
from .task import Task

NEEDS_STEPS = False
#: Between two looks at the heartbeat (ns); each is at the end of a backward pass.
_LOOK_NS = 1_000_000_000

_look_ns = 0  # when the next look is due


def begin(task: Task) -> None:
    """From now on the heartbeat is looked at."""
    task.is_held = True


def is_due() -> bool:
    """Whether it is time for a look."""
    global _look_ns
    now_ns = time.monotonic_ns()
    if now_ns < _look_ns:
        return False
    _look_ns = now_ns + _LOOK_NS
    return True


def look(task: Task) -> bool:
    """Withdraw the hooks if the monitor is gone; whether they were."""
    order = task.order()
    if order.number != task.number or is_alive(order.alive_ns, time.monotonic_ns(), ABANDONED_NS):
        return False
    task.stop()
    runtime.withdraw()
    return True


def step(task: Task) -> None:
    """There is none."""


def end(task: Task) -> None:
    """The hooks stay, or are being undone already."""
