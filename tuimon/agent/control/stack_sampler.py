"""Samples the Python stacks of all threads of this process, from a thread of its own.

It has to wait for the GIL: a stretch that never lets go of it is sampled at its end. How stacks are read differs by
interpreter (``own_windows.py``).
"""

import os
import sys
import time
from _thread import allocate_lock, get_ident, get_native_id, start_new_thread
from types import CodeType, FrameType
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..interpreter.stack_window import MAX_DEPTH, StackWindow, label_of
from ..ring.side_files import remove_file, write_file
from .task import Task

#: How long the end of the thread is waited for before a fork, in s; it sleeps, and wakes at once.
_END_S = 0.05
#: What samples may take of a core, from the second one on: the training waits for the GIL meanwhile. The monitor orders
#: a rate that takes less, but knows what a sample costs only after a window; with many threads that is 10 ms.
_CPU_RATIO = 0.01


class Window(StackWindow):
    """A window of stacks from the interpreter's frames; a frame whose thread goes on meanwhile keeps what it was."""

    def __init__(self) -> None:
        super().__init__()
        self._places: Dict[Tuple[int, int], int] = {}
        self._lines: List[Tuple[CodeType, int]] = []  # by place; keeps the code, so that its id is not reused

    def sample(self, own: int) -> None:
        """Add the stacks of all threads but ``own``."""
        self.instants += 1
        # No frame outlives this function: its locals would end later than in the plain program.
        for ident, frame in sys._current_frames().items():
            if ident != own and self.has_room(ident):
                self.add(ident, self._stack_of(frame))

    def stack_of_thread(self, ident: int) -> Optional[int]:
        """The number of a thread's stack now; None where it has ended."""
        frame = sys._current_frames().get(ident)
        return None if frame is None else self.number_of(self._stack_of(frame))

    def _stack_of(self, frame: Any) -> Tuple[int, ...]:
        places = self._places
        stack: List[int] = []
        while frame is not None and len(stack) < MAX_DEPTH:
            code = frame.f_code
            key = (id(code), frame.f_lasti)
            place = places.get(key)
            if place is None:
                place = self._add_place(key, code, frame)
            stack.append(place)
            frame = frame.f_back
        self.cut += frame is not None
        return tuple(stack)

    def _add_place(self, key: Tuple[int, int], code: CodeType, frame: FrameType) -> int:
        place = self._places[key] = len(self._lines)
        self._lines.append((code, frame.f_lineno or code.co_firstlineno))
        return place

    def frames(self) -> List[Dict[str, Any]]:
        """The places by their numbers."""
        return [{"name": code.co_name, "file": code.co_filename, "line": line} for code, line in self._lines]

    def label(self, ident: int) -> str:
        """The thread's name in ``threading``."""
        return label_of(ident)


class StackSampler:
    """The thread; it ends by itself when its task is over or no longer wanted."""

    def __init__(
        self, task: Task, path: str, rate_hz: int, window_ms: int, new_window: Callable[[], StackWindow] = Window
    ) -> None:
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
        try:
            self._sleeping.release()
        except RuntimeError:  # it has been woken already
            return

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
