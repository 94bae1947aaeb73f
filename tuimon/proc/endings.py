"""Which of many processes may have ended: one system call for all of them, where the kernel has descriptors of them."""

from __future__ import annotations

import os
import select
from collections.abc import Collection
from contextlib import suppress

from tuimon.proc import procfs

#: Descriptors held at most: of further processes nothing is known.
_DESCRIPTORS = 128


class Endings:
    """Watches processes by descriptors (pidfd, Linux 5.3); without one a process may have ended at any time."""

    def __init__(self) -> None:
        self._ended: select.epoll | None = None  # poll() fails where there are more than may be open now
        self._handles: dict[tuple[int, int], int] = {}  # by pid and start

    def watch(self, pid: int, start_ticks: int) -> None:
        """Watch one more, if it is there and there is room."""
        if (pid, start_ticks) in self._handles or len(self._handles) >= _DESCRIPTORS:
            return
        try:
            handle = os.pidfd_open(pid)
        except OSError:  # it has ended; or an older kernel, no descriptors left, a sandbox
            return
        with suppress(OSError):
            if procfs.start_ticks(pid) == start_ticks:  # read after it was opened: it is of this process
                self._ended = self._ended or select.epoll()
                self._ended.register(handle, select.EPOLLIN)
                self._handles[pid, start_ticks] = handle
                return
        os.close(handle)

    def living(self) -> Collection[tuple[int, int]]:
        """The processes that have not ended, by pid and start."""
        if self._ended is None or not self._handles:
            return ()
        ended = {handle for handle, _ in self._ended.poll(0, len(self._handles))}
        return {process for process, handle in self._handles.items() if handle not in ended}

    def forget(self, pid: int, start_ticks: int) -> None:
        """Watch it no longer."""
        handle = self._handles.pop((pid, start_ticks), None)
        if handle is not None and self._ended is not None:
            self._ended.unregister(handle)
            os.close(handle)

    def close(self) -> None:
        """Watch none."""
        for process in list(self._handles):
            self.forget(*process)
        if self._ended is not None:
            self._ended.close()
            self._ended = None
