"""Samples the Python stacks of all threads of this process, from a thread of its own.

It has to wait for the GIL: a stretch that never lets go of it is sampled at its end. How stacks are read differs by
interpreter (``stack_windows.py``).
"""

import os
import time
from _thread import allocate_lock, get_ident, get_native_id, start_new_thread
from typing import Type

from ..ring.side_files import remove_file, write_file
from .stack_windows import StackWindow
from .task import Task

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
