"""Stack samples that are read out of memory."""

from __future__ import annotations

import os
from _thread import get_ident

from .debug_offsets import find_offsets
from .memory import ProcessMemory
from .stack_window import MAX_DEPTH, MAX_THREADS, StackWindow, known_thread, thread_label
from .thread_stacks import ThreadStacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .thread_stacks import Place


class MemoryReader:
    """Reads the stacks of one process."""

    def __init__(self, pid: int, max_depth: int = MAX_DEPTH, max_threads: int = MAX_THREADS) -> None:
        """Raises OSError where its memory may not be read, UnknownPython where no interpreter is known in it."""
        self.pid = pid
        self.max_threads = max_threads
        self.memory = ProcessMemory(pid)
        with self.memory:
            self.stacks = ThreadStacks(self.memory, find_offsets(self.memory), max_depth)


class MemoryWindow(StackWindow):
    """A window of one reader. ``failed``: stacks that changed too fast to be copied whole."""

    def __init__(self, reader: MemoryReader) -> None:
        super().__init__(reader.max_threads)
        reader.stacks.forget()  # code may have gone since the last window
        self.failed = 0
        self._reader = reader
        self._places: dict[tuple[int, int], int] = {}
        self._frames: list[dict[str, Any]] = []
        self._tids: dict[int, int] = {}

    def sample(self, own: int) -> None:
        """Add the stacks of all threads but ``own``, a pthread id.

        Raises Unreadable or OSError when the process has gone.
        """
        self.instants += 1
        with self._reader.memory:
            for thread in self._reader.stacks.sample(own):
                if thread.places is None:
                    self.failed += 1
                elif self.has_room(thread.ident):
                    self._tids[thread.ident] = thread.tid
                    self.cut += thread.cut
                    self.add(thread.ident, tuple(map(self._number, thread.places)))

    def frames(self) -> list[dict[str, Any]]:
        """The places by their numbers."""
        return self._frames

    def label(self, ident: int) -> str:
        """The name that ``threading`` has for a thread of our own process, else the kernel's."""
        pid, tid = self._reader.pid, self._tids[ident]
        return thread_label(tid, known_thread(ident)[0] if pid == os.getpid() else kernel_name(pid, tid))

    def stack_of_thread(self, ident: int) -> int | None:
        """The number of a thread's stack now; None where it has ended, or changes too fast."""
        with self._reader.memory:
            for thread in self._reader.stacks.sample(get_ident(), ident):
                if thread.places is not None:
                    return self.number_of(tuple(map(self._number, thread.places)))
        return None

    def _number(self, place: Place) -> int:
        code, unit = place
        key = (code.begin, unit)
        number = self._places.get(key)
        if number is None:
            number = self._places[key] = len(self._frames)
            self._frames.append({"name": code.name, "file": code.file, "line": code.line(unit)})
        return number


def kernel_name(pid: int, tid: int) -> str:
    """A thread's name as Python 3.14 sets it in the kernel (15 bytes); "" before, where it is the program's."""
    if pid == tid:
        return "MainThread"
    names = [_comm(pid, task) for task in (tid, pid)]
    return "" if names[0] == names[1] else names[0]


def _comm(pid: int, tid: int) -> str:
    try:
        with open("/proc/%d/task/%d/comm" % (pid, tid), "rb") as file:
            return file.read().rstrip(b"\n").decode("utf-8", "replace")
    except OSError:
        return ""
