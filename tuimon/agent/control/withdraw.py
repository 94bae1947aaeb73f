"""Undoes all hooks: from here on the training runs as if tuimon had never been there, and has no ring."""

from .. import runtime
from .orders import orders
from .task import Task

NEEDS_STEPS = False


def begin(task: Task) -> None:
    """Withdraw; the answer is in the ring's file, which has no name any more."""
    orders.tasks.pop(task.command, None)  # this one goes on
    runtime.withdraw()
    task.finish(0)


def step(task: Task) -> None:
    """Do nothing."""


def end(task: Task) -> None:
    """Do nothing: there is nothing to undo."""
