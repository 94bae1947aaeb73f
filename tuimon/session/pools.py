"""Which native threads of a training process are its intra-op pool."""

from __future__ import annotations

import re

from tuimon.records import ThreadCpu, Threads
from tuimon.session.samples.window import HotSpots

_PYTHON = re.compile(r"python[\d.]*$")


def intra_op_pool(latest: Threads, hotspots: HotSpots | None, cores: int | None) -> frozenset[int]:
    """Ids of the OpenMP or MKL threads, where they are those for certain.

    They bear the name that their main thread had when it made them. Other native threads may too, so the number of
    those without Python must be one less than that of the cores (or half of them: hyper-threads), or they must have
    worked in step, as a team does. Before the first samples nobody knows which threads run Python.
    """
    if hotspots is None or hotspots.latest is None:
        return frozenset()
    main = next((thread.name for thread in latest.threads if thread.tid == latest.pid), "")
    native = [
        thread
        for thread in latest.threads
        if thread.tid != latest.pid
        and hotspots.thread_name(thread.tid) is None
        and (thread.name in (main, "pt_main_thread") or _PYTHON.match(thread.name))
    ]
    total = sum(thread.count for thread in native)
    by_number = cores is not None and total > 0 and total in (cores - 1, cores // 2 - 1)
    return frozenset(thread.tid for thread in native) if by_number or _in_step(native) else frozenset()


def _in_step(threads: list[ThreadCpu]) -> bool:
    """Whether several threads used much the same CPU: a team that shares out each loop."""
    busy = [thread.cpu_ratio for thread in threads if thread.cpu_ratio is not None and thread.count == 1]
    return len(busy) == len(threads) >= 2 and min(busy) > 0.02 and max(busy) < 1.5 * min(busy)


def together(threads: list[ThreadCpu]) -> ThreadCpu:
    """Several threads as one row: CPU added, the longest wait, running if any is."""
    first = threads[0]
    cpu = [thread.cpu_ratio for thread in threads if thread.cpu_ratio is not None]
    delays = [thread.delay_ratio for thread in threads if thread.delay_ratio is not None]
    return ThreadCpu(
        first.tid,
        first.name,
        round(sum(cpu), 3) if cpu else None,
        "running" if any(thread.state == "running" for thread in threads) else first.state,
        max(delays, default=None),
        sum(thread.count for thread in threads),
    )
