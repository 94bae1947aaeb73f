"""Samples stacks inside the process, where no other process may read its memory.

The thread is there from the first order on until the monitor stops beating. A fork finds the process without it: the
child would else be warned of a thread that it does not have (Python 3.12 and later), and the thread begins again at the
next backward pass.
"""

import os
from typing import Any, Optional

from .. import runtime
from ..outside import shielded_at_fork
from ..ring.side_files import STACKS, side_file
from ..ring.stack_file import unpack_sampling
from .orders import call_again
from .stack_sampler import StackSampler
from .stack_windows import CannotRead, safe_window
from .task import Task

NEEDS_STEPS = False

_sampler: Optional[StackSampler] = None
_interrupted: Optional[Task] = None  # its thread was ended for a fork
_fork_hooked = False


def begin(task: Task) -> None:
    """Start the thread. The argument is that of ``pack_sampling``; the answer counts the windows."""
    global _fork_hooked
    if not _fork_hooked:
        _fork_hooked = True
        os.register_at_fork(before=shielded_at_fork(_before_fork))
    _start(task)


def step(task: Task) -> None:
    """After a fork: begin again."""
    global _interrupted
    task.needs_steps = False
    if _interrupted is task:
        _interrupted = None
        _start(task)


def end(task: Task) -> None:
    """End the thread, and wait until it is gone."""
    global _sampler, _interrupted
    sampler, _sampler, _interrupted = _sampler, None, None
    if sampler is not None and sampler.pid == os.getpid():
        sampler.stop()
        sampler.join()


def _start(task: Task) -> None:
    global _sampler
    writer: Any = runtime.writer()
    if writer is None:
        task.fail("there is no ring")
        return
    rate_hz, window_ms = unpack_sampling(task.argument)
    try:
        new_window = safe_window()
    except CannotRead as error:
        task.refuse(str(error))
        return
    _sampler = StackSampler(task, side_file(writer.path, STACKS), rate_hz, window_ms, new_window)
    _sampler.start()


def _before_fork() -> None:
    global _interrupted
    sampler = _sampler
    if sampler is None or sampler.pid != os.getpid() or sampler.task.is_over:
        return
    end(sampler.task)
    _interrupted = sampler.task
    call_again(sampler.task)
