"""Refuse a process that gdb would stop for too long: by the number of its threads, and those that cannot be stopped."""

from __future__ import annotations

import time

from tuimon.errors import CannotInject
from tuimon.launch.injection.target import RUN_INSTEAD
from tuimon.proc import procfs

#: gdb stops threads one by one, and inspects each while all stand still. Measured with gdb 13 on two cores: 0.05 s with
#: one thread, 0.15 s with 500, 0.3 to 0.4 s with 1,000, 0.9 s with 2,000, 1.6 s with 3,000; with 5,000 it had to be
#: killed after 15 s, in its call, and the process with it. Trainings on eight GPUs have some hundred threads a process.
THREADS_LIMIT = 1_000
#: Cost of a thread at least (s): 0.3 s with 1,000.
_THREAD_S = 0.0003
#: A thread that is in uninterruptible sleep at all of these moments may stay there. A read from a disk takes
#: milliseconds, and gdb can wait for that.
_LOOKS = 10
_BETWEEN_LOOKS_S = 0.05


def check_threads(pid: int) -> None:
    """Raise CannotInject where gdb would hold the process for long."""
    count = len(procfs.thread_ids(pid))
    if count > THREADS_LIMIT:
        raise CannotInject(
            f"process {pid} has {count:,} threads: gdb would stop it for at least {count * _THREAD_S:.1f} s"
            f" (the limit is {THREADS_LIMIT:,} threads)",
            RUN_INSTEAD,
        )
    stuck = _uninterruptible(pid)
    for _ in range(_LOOKS):
        if not stuck:
            return
        time.sleep(_BETWEEN_LOOKS_S)
        stuck &= _uninterruptible(pid)
    if stuck:
        raise CannotInject(
            f"thread {min(stuck)} of process {pid} is in uninterruptible sleep (D): gdb would hold all others until it"
            " comes back from the kernel",
            f"It waits for a disk, a network file system or a driver: try again later. {RUN_INSTEAD}",
        )


def _uninterruptible(pid: int) -> set[int]:
    found = {tid: procfs.read_thread_stat(pid, tid) for tid in procfs.thread_ids(pid)}
    return {tid for tid, stat in found.items() if stat is not None and stat.state == "D"}
