"""The processes on a GPU, as many as a record may hold, and whether a driver's pids are valid here."""

from __future__ import annotations

import os
from collections.abc import Collection

from tuimon.records import GpuProcess

_LISTED = 16
_PIDS = 256
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel


def in_first_pid_namespace() -> bool:
    """True if pids here are those of the machine; in a container they may be others."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


class Processes:
    """Those of one GPU at the latest poll."""

    def __init__(self) -> None:
        self.found: list[GpuProcess] = []  # most memory first; pid 0: not valid here
        self.pids: list[int] = []  # all valid ones, also of processes not in ``found``

    def keep(self, found: Collection[GpuProcess]) -> None:
        """Keep what a record holds of them."""
        self.pids = sorted(process.pid for process in found if process.pid)[:_PIDS]
        self.found = sorted(found, key=lambda process: -(process.memory_bytes or 0))[:_LISTED]
