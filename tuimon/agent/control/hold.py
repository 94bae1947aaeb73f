"""Holds the hooks for a monitor: when it disappears, they are undone as if it had withdrawn them.

Only hooks that a monitor has brought in are held; those of ``tuimon run`` are the run's own.
"""

import time

from .. import runtime
from ..ring.control_words import ABANDONED_NS, is_alive
from .task import Task

NEEDS_STEPS = False
#: Between two checks of the heartbeat (ns); each is at the end of a backward pass.
_CHECK_NS = 1_000_000_000

due_ns = 0  # when the next check is due


def begin(task: Task) -> None:
    """Check the heartbeat from now on."""
    task.is_held = True


def is_due() -> bool:
    """True if a check is due."""
    global due_ns
    now_ns = time.monotonic_ns()
    if now_ns < due_ns:
        return False
    due_ns = now_ns + _CHECK_NS
    return True


def withdraw_if_abandoned(task: Task) -> bool:
    """Withdraw the hooks if the monitor is gone; True if so."""
    order = task.order()
    if order.number != task.number or is_alive(order.alive_ns, time.monotonic_ns(), ABANDONED_NS):
        return False
    task.stop()
    runtime.withdraw()
    return True
