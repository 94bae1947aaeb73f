"""Samples the Python stacks of all threads inside the process, where no other process may read its memory.

The thread is there from the first order on until the monitor stops beating. A fork finds the process without it: the
child would else be warned of a thread that it does not have (Python 3.12 and later), and the thread begins again at the
next backward pass.

It has to wait for the GIL: a stretch that never lets go of it is sampled at its end. How stacks are read differs by
interpreter (``stack_windows.py``).
"""

import os
import time
from _thread import allocate_lock, get_ident, get_native_id, start_new_thread
from typing import Any, Optional, Type

from .. import runtime
from ..outside import shielded_at_fork
from ..ring.files import STACKS, remove_file, side_file, unpack_sampling, write_file
from .orders import Task, call_again
from .stack_windows import CannotRead, StackWindow, safe_window

NEEDS_STEPS = False

#: How long the end of the thread is waited for before a fork, in s; it sleeps, and wakes at once.
_END_S = 0.05
#: The most of a core that samples may take, from the second one on: the training waits for the GIL meanwhile. The
#: monitor orders a rate that takes less, but knows the cost of a sample only after a window; with many threads 10 ms.
_CPU_RATIO = 0.01


class StackSampler:
    """The thread; it ends by itself when its task is over or no longer wanted."""

    def __init__(self, task: Task, path: str, rate_hz: int, window_ms: int, new_window: Type[StackWindow]) -> None:
        """``path``: of the stack file."""
        self.pid = os.getpid()
        self.task = task
        self._path = path
        self._new_window = new_window
        self._rate_hz = rate_hz
        self._window_ns = window_ms * 1_000_000
        self._sleeping = allocate_lock()
        self._ended = allocate_lock()
        self._tid = 0
        self._sample_ns = 0  # what the latest sample took of a core
        self._random = time.monotonic_ns() | 1
        self._sleeping.acquire()
        self._ended.acquire()

    def start(self) -> None:
        """Begin. ``threading`` does not know the thread: a program that counts its threads finds its own."""
        start_new_thread(self._run, ())

    def stop(self) -> None:
        """End soon; does not wait for it."""
        if self._sleeping.locked():  # else it has been woken already
            self._sleeping.release()

    def join(self) -> None:
        """Wait until the thread is gone, for a short time at most."""
        if self._ended.acquire(True, _END_S):
            self._ended.release()
            for _ in range(50):
                if not os.path.exists("/proc/self/task/%d" % self._tid):
                    return
                time.sleep(0.0001)

    def _run(self) -> None:
        try:
            self._tid = get_native_id()
            self._sample_windows()
        except Exception as error:
            self.task.fail("%s: %s" % (type(error).__name__, error))
        finally:
            remove_file(self._path)
            self._ended.release()

    def _sample_windows(self) -> None:
        task = self.task
        windows = task.value  # not 0 where the thread was ended for a fork
        while not task.is_over:
            begin_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
            window = self._new_window()
            while time.monotonic_ns() - begin_ns < self._window_ns:
                if self._sleeping.acquire(True, self._pause_s()):
                    return
                before_ns = time.thread_time_ns()
                window.sample(get_ident())
                self._sample_ns = time.thread_time_ns() - before_ns
            if not task.is_wanted():
                task.stop()
                return
            windows += 1
            content = window.content()
            content.update(order=task.number, window=windows, begin_ns=begin_ns, end_ns=time.monotonic_ns())
            content["cpu_ns"] = time.thread_time_ns() - cpu_ns
            write_file(self._path, content)
            task.report(windows)

    def _pause_s(self) -> float:
        """A random time around the rate's, as a fixed one beats against the steps; not by the program's generators.

        It is longer where the latest sample took more than its share.
        """
        self._random = (self._random * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        mean_s = max(1 / self._rate_hz, self._sample_ns / 1e9 / _CPU_RATIO)
        return (0.5 + (self._random >> 32) / (1 << 32)) * mean_s


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
