"""OS ids of threads in Pythons before 3.11, which keep only the pthread id; the C library's descriptor holds both.

A pthread id is the address of the thread's descriptor, and the tid lies at an offset in it that has stayed the same in
every C library of these Pythons. A value read there counts only if it is one of the process's threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from tuimon.proc import procfs

#: Offset of ``tid`` in ``struct pthread``: glibc on x86-64, on aarch64, musl (nptl/descr.h, internal/pthread_impl.h).
_OFFSETS = (720, 208, 48)
#: PID_MAX_LIMIT (linux/threads.h); anything above is an address.
_LARGEST_TID = 1 << 22


def os_ids(pid: int, thread_ids: Iterable[int]) -> dict[int, int]:
    """OS id by pthread id, without ids that are OS ids already or cannot be resolved. 3 us each; never raises."""
    unknown = [thread_id for thread_id in thread_ids if thread_id > _LARGEST_TID]
    if not unknown:
        return {}
    tids = set(procfs.thread_ids(pid))
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        found = {thread_id: _tid(memory, thread_id, tids) for thread_id in unknown}
    finally:
        os.close(memory)
    resolved = {thread_id: tid for thread_id, tid in found.items() if tid is not None}
    return resolved if len(set(resolved.values())) == len(resolved) else {}


def _tid(memory: int, descriptor: int, tids: set[int]) -> int | None:
    for offset in _OFFSETS:
        try:
            tid = int.from_bytes(os.pread(memory, 4, descriptor + offset), "little")
        except (OSError, OverflowError):  # the thread is gone, or this is no address
            continue
        if tid in tids:
            return tid
    return None
