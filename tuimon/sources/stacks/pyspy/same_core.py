"""If no core is free, py-spy runs on the core of the thread that it samples.

There it stops that thread for the time of a sample, 0.3 to 0.5 ms (it takes short turns: ``take_short_turns``). On
another core it takes that from the threads that compute together on all of them: the phases in which they do get
longer, but not one in which the thread works alone, and that is over by the time the stack is read more often than it
should be. Its share was measured as 0.21 to 0.24 where it was 0.37 to 0.39 (steps of 4 ms, two cores), and as 0.37 to
0.39 on the thread's own core. With cores to spare py-spy takes none from anybody, and stays where it is.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress

from tuimon.proc import procfs

#: A core was free if fewer threads than there are cores were runnable, in nearly all of the latest samples: our choice.
_SAMPLES = 32
_CROWDED_RATIO = 0.2


class Cores:
    """How crowded the cores have been lately, by how many threads were runnable in each sample."""

    def __init__(self, number: int | None = None) -> None:
        """``number``: of cores that may be used."""
        self._number = number if number is not None else len(os.sched_getaffinity(0))
        self._full: deque[bool] = deque(maxlen=_SAMPLES)

    def sample(self) -> None:
        """Count the threads that run or wait for a core at this moment, except our own."""
        words = (procfs.read_bytes("/proc/loadavg", 128) or b"").split()
        runnable = words[3].partition(b"/")[0] if len(words) > 3 else b""
        if runnable.isdigit():
            self._full.append(int(runnable) - 1 >= self._number)

    @property
    def are_crowded(self) -> bool:
        """True if none was free in a good part of the latest samples."""
        return sum(self._full) > _CROWDED_RATIO * len(self._full)


def move(sampler: int, pid: int) -> None:
    """Put all threads of the process ``sampler`` on the core that the main thread of ``pid`` is on now, if they may."""
    thread = procfs.read_thread_stat(pid, pid)
    if thread is None or thread.core is None:
        return
    for tid in procfs.thread_ids(sampler):
        with suppress(OSError):  # it has ended, or may not use that core
            os.sched_setaffinity(tid, {thread.core})
