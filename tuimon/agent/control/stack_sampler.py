"""Samples the Python stacks of all threads of this process, from a thread of its own.

A sample is taken while this thread holds the GIL, so no other one changes its stack meanwhile. It has to wait for the
GIL: a stretch that never lets go of it is sampled at its end.
"""

import os
import sys
import time
from _thread import allocate_lock, get_ident, get_native_id, start_new_thread
from types import CodeType, FrameType
from typing import Any, Dict, List, Tuple

from ..ring.side_files import remove_file, write_file
from ..ring.stack_file import MAX_DEPTH, MAX_THREADS
from .task import Task

#: How long the end of the thread is waited for before a fork, in s; it sleeps, and wakes at once.
_END_S = 0.05


class Window:
    """The samples of one window: a stack is a tuple of places, a place a line of a function."""

    def __init__(self) -> None:
        self.instants = self.cut = 0
        self._places: Dict[Tuple[int, int], int] = {}
        self._lines: List[Tuple[CodeType, int]] = []  # by place; keeps the code, so that its id is not reused
        self._stacks: Dict[Tuple[int, ...], int] = {}
        self._threads: Dict[int, List[int]] = {}  # ident -> stacks in the order of the samples

    def sample(self, own: int) -> None:
        """Add the stacks of all threads but ``own``."""
        self.instants += 1
        # No frame outlives this function: its locals would end later than in the plain program.
        for ident, frame in sys._current_frames().items():
            if ident == own:
                continue
            thread = self._threads.get(ident)
            if thread is None:
                if len(self._threads) >= MAX_THREADS:
                    self.cut += 1
                    continue
                thread = self._threads[ident] = []
            thread.append(self.stack_of(frame))

    def stack_of(self, frame: Any) -> int:
        """The number of a thread's stack, new or known."""
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
        whole = tuple(stack)
        return self._stacks.setdefault(whole, len(self._stacks))

    def _add_place(self, key: Tuple[int, int], code: CodeType, frame: FrameType) -> int:
        place = self._places[key] = len(self._lines)
        self._lines.append((code, frame.f_lineno or code.co_firstlineno))
        return place

    def frames(self) -> List[Dict[str, Any]]:
        """The places by their numbers."""
        return [{"name": code.co_name, "file": code.co_filename, "line": line} for code, line in self._lines]

    def stacks(self) -> List[Tuple[int, ...]]:
        """The stacks by their numbers, each from the outermost place to the innermost."""
        return [stack[::-1] for stack in self._stacks]

    def content(self) -> Dict[str, Any]:
        """The samples as the stack file holds them."""
        frames, stacks = self.frames(), self.stacks()
        profiles = [
            {"name": _label(ident), "samples": [stacks[number] for number in numbers]}
            for ident, numbers in self._threads.items()
        ]
        return {"profiles": profiles, "shared": {"frames": frames}, "instants": self.instants, "cut": self.cut}


class StackSampler:
    """The thread; it ends by itself when its task is over or no longer wanted."""

    def __init__(self, task: Task, path: str, rate_hz: int, window_ms: int) -> None:
        """``path``: of the stack file."""
        self.pid = os.getpid()
        self.task = task
        self._path = path
        self._rate_hz = rate_hz
        self._window_ns = window_ms * 1_000_000
        self._sleeping = allocate_lock()
        self._ended = allocate_lock()
        self._tid = 0
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
        except RuntimeError:  # it has been asked to already
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
            window = Window()
            while time.monotonic_ns() - begin_ns < self._window_ns:
                if self._sleeping.acquire(True, self._pause_s()):
                    return
                window.sample(get_ident())
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
        """A random time around the rate's, as a fixed one beats against the steps; not by the program's generators."""
        self._random = (self._random * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        return (0.5 + (self._random >> 32) / (1 << 32)) / self._rate_hz


def _label(ident: int) -> str:
    """How py-spy names a thread; where the OS id is unknown, which only ``threading`` has, by its pthread id."""
    known = getattr(sys.modules.get("threading"), "_active", {}).get(ident)
    tid = getattr(known, "native_id", None)
    return 'Thread %d "%s"' % (tid, getattr(known, "_name", "")) if tid else 'Thread 0x%X ""' % ident
