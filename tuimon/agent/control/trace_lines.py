"""The lines that the training thread is at while it is traced: its stack, a thousand times a second at most.

torch's own ``with_stack`` follows every call of Python: the trace takes half as long again to stop and to write. A
sample takes some 20 us of another thread, and the steps are slowed by the profiler anyway.
"""

import os
import time
from _thread import allocate_lock, start_new_thread
from typing import List, Optional, Tuple, Type

from ..outside import shielded_at_fork
from ..ring.side_files import LINES, remove_file, side_file, write_file
from .stack_windows import StackWindow

#: Samples of a trace, at most, and how far apart they are at least (s).
SAMPLES = 4000
_SHORTEST_S = 0.001
#: How long a fork waits for the thread's end at most (s).
_END_S = 0.05


class LineSampler:
    """The thread; it writes its file once it is stopped."""

    def __init__(self, ring_path: str, thread: int, number: int, new_window: Type[StackWindow]) -> None:
        """``thread``: the one to sample (``get_ident``); ``number``: of the order, which the file repeats."""
        global _current, _fork_hooked
        self.path = side_file(ring_path, LINES)
        self._thread = thread
        self._number = number
        self._new_window = new_window
        self._ended, self._over = allocate_lock(), allocate_lock()
        self._written = True
        self._pid = os.getpid()
        self._pause_s = _SHORTEST_S
        if not _fork_hooked:
            _fork_hooked = True
            os.register_at_fork(before=shielded_at_fork(_before_fork))
        _current = self

    def start(self, expected_ns: int) -> None:
        """Begin; ``expected_ns``: how long the trace may take."""
        remove_file(self.path)
        self._pause_s = max(_SHORTEST_S, expected_ns / 1e9 / SAMPLES)
        self._over.acquire()
        self._ended.acquire()
        start_new_thread(self._run, ())

    def stop(self, *, keep: bool) -> None:
        """End soon; does not wait for it. ``keep``: write the file."""
        self._written = keep
        if self._over.locked():
            self._over.release()

    def join(self) -> None:
        """Wait until the thread has ended, for a short time."""
        if self._ended.acquire(True, _END_S):
            self._ended.release()

    def end_for_fork(self) -> None:
        """A child would be warned of a thread that it does not have (Python 3.12 and later)."""
        if self._pid == os.getpid() and self._over.locked():
            self.stop(keep=True)
            self.join()

    def _run(self) -> None:
        try:
            window = self._new_window()
            found = self._samples_in(window)
            if self._written:
                content = {
                    "order": self._number,
                    "frames": window.frames(),
                    "stacks": window.stacks(),
                    "samples": found,
                }
                write_file(self.path, content)
        except Exception:
            remove_file(self.path)
        finally:
            self._ended.release()

    def _samples_in(self, window: StackWindow) -> List[Tuple[int, int]]:
        found: List[Tuple[int, int]] = []
        for _ in range(SAMPLES):
            if self._over.acquire(True, self._pause_s):
                break
            stack = window.stack_of_thread(self._thread)
            if stack is not None:
                found.append((time.monotonic_ns(), stack))
        return found


_current: Optional[LineSampler] = None
_fork_hooked = False


def _before_fork() -> None:
    if _current is not None:
        _current.end_for_fork()
