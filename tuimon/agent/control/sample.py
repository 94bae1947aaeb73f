"""Samples the Python stacks of threads inside the process, for when no other process may read its memory.

The sampling thread runs from the first order on until the monitor's heartbeat stops, or while a trace lasts. It ends
before each fork, as Python 3.12 and later warn of forks in a process with threads, and begins again at the next
backward pass.

The thread has to wait for the GIL: code that does not release it is sampled at its end. How stacks are read differs by
interpreter (``own_threads.py``). Samples have the shape of the stack file (``ring/files.py``).
"""

import os
import sys
import time
from _thread import allocate_lock, get_ident, get_native_id, start_new_thread
from types import CodeType
from typing import Any, Dict, Iterable, List, Optional, Tuple, Type

from .. import runtime
from ..outside import shielded_at_fork
from ..own_threads import dump, dumped, dumped_place, has_unsafe_dumps, has_unsafe_frames
from ..ring.files import STACKS, remove_file, side_file, unpack_sampling, write_file
from .orders import Task, Work, call_again

#: How long a fork waits for the thread to end at most, in s; a sleeping thread wakes at once, if a core is free.
_END_S = 0.5
#: Most of a core that samples may take, from the second one on: the training waits for the GIL meanwhile. The monitor
#: orders a rate that takes less, but learns only after a window what a sample costs: 10 ms with many threads.
_CPU_RATIO = 0.01

#: Most frames of a stack, counted from the innermost, and most threads of a process.
MAX_DEPTH = 192
MAX_THREADS = 128


class CannotRead(Exception):
    """The stacks cannot be read; the text says why."""


class StackWindow:
    """The stacks of a window: a stack is a tuple of places, a place is a line of a function; each is kept once."""

    def __init__(self) -> None:
        self.instants = self.cut = 0
        self._stacks: Dict[Tuple[int, ...], int] = {}
        self._threads: Dict[int, List[int]] = {}  # ident -> stacks in the order of the samples

    def threads(self) -> Iterable[Tuple[int, Any]]:
        """All threads now: pthread id, and the argument for ``stack_of``."""
        raise NotImplementedError

    def stack_of(self, running: Any) -> Tuple[int, ...]:
        """The numbers of a thread's places, innermost first."""
        raise NotImplementedError

    def frames(self) -> List[Dict[str, Any]]:
        """The places by their numbers: name, file, line."""
        raise NotImplementedError

    def sample(self, own: int) -> None:
        """Add the stacks of all threads but ``own``, a pthread id."""
        self.instants += 1
        # No frame outlives this function: its locals would end later than in the plain program.
        for ident, running in self.threads():
            if ident == own:
                continue
            if ident in self._threads or len(self._threads) < MAX_THREADS:
                self._threads.setdefault(ident, []).append(self.number_of(self.stack_of(running)))
            else:
                self.cut += 1

    def stack_of_thread(self, ident: int) -> Optional[int]:
        """The number of a thread's stack now; None if it has ended."""
        return next((self.number_of(self.stack_of(each)) for thread, each in self.threads() if thread == ident), None)

    def number_of(self, stack: Tuple[int, ...]) -> int:
        """The number of a stack, new or known."""
        return self._stacks.setdefault(stack, len(self._stacks))

    def stacks(self) -> List[Tuple[int, ...]]:
        """The stacks by their numbers, each from the outermost place to the innermost."""
        return [stack[::-1] for stack in self._stacks]

    def content(self) -> Dict[str, Any]:
        """The samples as the stack file holds them."""
        frames, stacks = self.frames(), self.stacks()
        profiles = [
            {"name": _label_of(ident), "samples": [stacks[number] for number in numbers]}
            for ident, numbers in self._threads.items()
        ]
        return {"profiles": profiles, "shared": {"frames": frames}, "instants": self.instants, "cut": self.cut}


class FrameWindow(StackWindow):
    """A window of stacks from the interpreter's frames; a frame keeps its content even if its thread goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._places: Dict[Tuple[int, int], int] = {}
        self._lines: List[Tuple[CodeType, int]] = []  # by place; keeps the code, so that its id is not reused

    def threads(self) -> Iterable[Tuple[int, Any]]:
        return sys._current_frames().items()

    def stack_of(self, running: Any) -> Tuple[int, ...]:
        frame = running
        places = self._places
        stack: List[int] = []
        while frame is not None and len(stack) < MAX_DEPTH:
            code = frame.f_code
            key = (id(code), frame.f_lasti)
            place = places.get(key)
            if place is None:
                place = places[key] = len(self._lines)
                self._lines.append((code, frame.f_lineno or code.co_firstlineno))
            stack.append(place)
            frame = frame.f_back
        self.cut += frame is not None
        return tuple(stack)

    def frames(self) -> List[Dict[str, Any]]:
        return [{"name": code.co_name, "file": code.co_filename, "line": line} for code, line in self._lines]


class DumpedWindow(StackWindow):
    """A window of dumped stacks, for interpreters in which frames of other threads are unsafe."""

    def __init__(self) -> None:
        super().__init__()
        self._places: Dict[bytes, int] = {}

    def threads(self) -> Iterable[Tuple[int, Any]]:
        return ((thread.ident, thread) for thread in dump())

    def stack_of(self, running: Any) -> Tuple[int, ...]:
        self.cut += running.is_cut
        return tuple(self._places.setdefault(frame, len(self._places)) for frame in running.frames)

    def frames(self) -> List[Dict[str, Any]]:
        return [{"name": at.name, "file": at.file, "line": at.line} for at in map(dumped_place, self._places)]


def safe_window() -> Type[StackWindow]:
    """The kind of window that is safe in this interpreter. Raises CannotRead."""
    if not has_unsafe_frames():
        return FrameWindow
    if has_unsafe_dumps():
        raise CannotRead("this Python has no GIL, and its stacks can be read from 3.13.2 on")
    if dumped() is None:
        raise CannotRead("the stacks of this Python cannot be written down")
    return DumpedWindow


def _label_of(ident: int) -> str:
    """The label that py-spy gives a thread; with the pthread id if ``threading`` does not know the thread's OS id."""
    known = getattr(sys.modules.get("threading"), "_active", {}).get(ident)
    tid = getattr(known, "native_id", None)
    return 'Thread %d "%s"' % (tid, getattr(known, "_name", "")) if tid else 'Thread 0x%X ""' % ident


class SamplingThread(Work):
    """A thread that ends when it is stopped. ``threading`` does not know it, as a program may count its threads."""

    def __init__(self, path: str) -> None:
        """``path``: the file that the thread writes."""
        self.pid = os.getpid()
        self.path = path
        self._sleeping, self._ended = allocate_lock(), allocate_lock()
        self._tid = 0

    def start(self) -> None:
        global _fork_hooked
        if not _fork_hooked:
            _fork_hooked = True
            os.register_at_fork(before=shielded_at_fork(_before_fork))
        self._sleeping.acquire()
        self._ended.acquire()
        _threads[:] = [*(each for each in _threads if each.is_running()), self]
        start_new_thread(self._run, ())

    def is_running(self) -> bool:
        """True in the process that has the thread, until it ends."""
        return self.pid == os.getpid() and self._ended.locked()

    def stop(self) -> None:
        """Have the thread end soon; does not wait for that."""
        if self._sleeping.locked():  # else it has been woken already
            self._sleeping.release()

    def end(self) -> None:
        """Stop, and wait until the thread is gone, for a short time at most."""
        self.stop()
        if self._ended.acquire(True, _END_S):
            self._ended.release()
            for _ in range(50):
                if not os.path.exists("/proc/self/task/%d" % self._tid):
                    return
                time.sleep(0.0001)

    def end_for_fork(self) -> None:
        """End before this process forks."""
        self.end()

    def is_stopped_after(self, pause_s: float) -> bool:
        """Sleep; True if the thread is to end."""
        return self._sleeping.acquire(True, pause_s)

    def sample(self) -> None:
        """Take the samples; this runs in the thread."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """Record that sampling has failed; there is no file."""

    def _run(self) -> None:
        try:
            self._tid = get_native_id()
            self.sample()
        except Exception as error:
            remove_file(self.path)
            self.fail(error)
        finally:
            self._ended.release()


_threads: List[SamplingThread] = []
_fork_hooked = False


def _before_fork() -> None:
    for thread in list(_threads):
        if thread.is_running():
            thread.end_for_fork()


class StackSampler(SamplingThread):
    """Samples all threads; ends by itself when its task is over or no longer wanted."""

    def __init__(self, task: Task, path: str, rate_hz: int, window_ms: int, new_window: Type[StackWindow]) -> None:
        """``path``: of the stack file."""
        super().__init__(path)
        self.task = task
        self._new_window = new_window
        self._rate_hz = rate_hz
        self._window_ns = window_ms * 1_000_000
        self._sample_ns = 0  # the CPU time of the latest sample
        self._random = time.monotonic_ns() | 1

    def end_for_fork(self) -> None:
        self.end()
        if not self.task.is_over:
            call_again(self.task)

    def step(self) -> None:
        """Begin again after a fork."""
        self.task.needs_steps = False
        self.task.work = begin(self.task) or self

    def fail(self, error: Exception) -> None:
        self.task.fail("%s: %s" % (type(error).__name__, error))

    def sample(self) -> None:
        try:
            self._sample_windows()
        finally:
            remove_file(self.path)

    def _sample_windows(self) -> None:
        task = self.task
        windows = task.value  # not 0 if the thread was ended for a fork
        while not task.is_over:
            begin_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
            window = self._new_window()
            while time.monotonic_ns() - begin_ns < self._window_ns:
                # A random pause around that of the rate, as a fixed one beats against the steps; not from the program's
                # own generators. It is longer if the latest sample took more than its share.
                self._random = (self._random * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
                mean_s = max(1 / self._rate_hz, self._sample_ns / 1e9 / _CPU_RATIO)
                if self.is_stopped_after((0.5 + (self._random >> 32) / (1 << 32)) * mean_s):
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
            write_file(self.path, content)
            task.report(windows)


def begin(task: Task) -> Optional[Work]:
    """Start the thread. The argument is that of ``pack_sampling``; the answer counts the windows."""
    writer: Any = runtime.writer()
    if writer is None:
        task.fail("there is no ring")
        return None
    rate_hz, window_ms = unpack_sampling(task.argument)
    try:
        new_window = safe_window()
    except CannotRead as error:
        task.refuse(str(error))
        return None
    sampler = StackSampler(task, side_file(writer.path, STACKS), rate_hz, window_ms, new_window)
    sampler.start()
    return sampler
