"""The machine's memory, what the run's control group leaves of it, and how many of its cores are busy.

psutil has the memory. It has no pressure figures, reports swapping as 0 where the kernel does not count it, and takes a
page for 4 KiB: those are read here. Formats: proc_vmstat(5), Documentation/accounting/psi.rst in the Linux sources.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import psutil

from tuimon.proc import procfs
from tuimon.records import MachineMemory, Record
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.control_groups import ControlGroups, GroupCpu, fields, text

#: Between two records; swapping is a rate over this long.
_PERIOD_S = 5.0


class _Used(NamedTuple):
    """CPU time since boot, in seconds."""

    t: float
    busy_s: float
    stolen_s: float
    held_s: float | None  # None without a CPU limit


class MachineSource:
    """One record every five seconds."""

    name = "machine"
    period_s = _PERIOD_S

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic, root: str = "/") -> None:
        """``root``: where /proc and /sys are; psutil reads its own ``PROCFS_PATH``."""
        self._table = table
        self._clock = clock
        self._root = root.rstrip("/")
        self._groups = ControlGroups(table.root_pid, self._root)
        self._swapped: tuple[float, int, int] | None = None  # t, bytes in and out since boot
        self._used: _Used | None = None

    def read(self) -> Iterable[Record]:
        """The record that is due; none where nothing can be read."""
        now_s = self._clock()
        total_bytes, available_bytes = _machine_memory()
        window_s, swap_in, swap_out = self._swapping(now_s)
        group = self._groups.tightest_memory()
        limit = self._groups.tightest_cpu()
        busy, stolen, held = self._cores(now_s, limit)
        if total_bytes is None and group is None:
            return
        yield MachineMemory(
            t=round(now_s, 3),
            pid=0,
            window_s=round(window_s, 3),
            total_bytes=total_bytes,
            available_bytes=available_bytes,
            limit_bytes=group.limit_bytes if group else None,
            limit_used_bytes=group.used_bytes if group else None,
            swap_in_bytes_per_s=swap_in,
            swap_out_bytes_per_s=swap_out,
            stalled_ratio=self._stalled_ratio(),
            busy_cores=busy,
            stolen_cores=stolen,
            cpu_limit_cores=round(limit.limit_cores, 3) if limit else None,
            held_cores=held,
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _swapping(self, now_s: float) -> tuple[float, float | None, float | None]:
        """Seconds since the last read, bytes a second in and out; None at the first."""
        counts = self._fields("/proc/vmstat")
        pages_in, pages_out = counts.get("pswpin"), counts.get("pswpout")
        if pages_in is None or pages_out is None:
            return self.period_s, None, None
        before, self._swapped = self._swapped, (now_s, pages_in, pages_out)
        if before is None or now_s <= before[0]:
            return self.period_s, None, None
        span_s = now_s - before[0]
        rates = [
            (new - old) * procfs.PAGE_BYTES / span_s for new, old in ((pages_in, before[1]), (pages_out, before[2]))
        ]
        return span_s, round(rates[0]), round(rates[1])

    def _cores(self, now_s: float, limit: GroupCpu | None) -> tuple[float | None, float | None, float | None]:
        """Busy, stolen and held by the CPU limit since the last read; None at the first."""
        held_s = limit.throttled_s if limit is not None else None
        before, self._used = self._used, _used(now_s, held_s)
        if before is None or self._used is None or now_s <= before.t:
            return None, None, None
        span_s, now = now_s - before.t, self._used
        busy = max(0.0, now.busy_s - before.busy_s) / span_s
        stolen = max(0.0, now.stolen_s - before.stolen_s) / span_s

        if held_s is None or before.held_s is None:
            return round(busy, 3), round(stolen, 3), None
        return round(busy, 3), round(stolen, 3), round(max(0.0, held_s - before.held_s) / span_s, 3)

    def _stalled_ratio(self) -> float | None:
        """``some avg10`` of the kernel's pressure figures; None where it is built without them."""
        for line in self._text("/proc/pressure/memory").splitlines():
            kind, *pairs = line.split()
            share = dict(pair.split("=", 1) for pair in pairs if "=" in pair).get("avg10") if kind == "some" else None
            if share is not None:
                return round(float(share) / 100, 4)
        return None

    def _fields(self, path: str) -> dict[str, int]:
        return fields(self._text(path))

    def _text(self, path: str) -> str:
        return text(self._root + path)


def _used(now_s: float, held_s: float | None) -> _Used | None:
    """CPU time of all programs, of the kernel too, on the cores that may be used here; None where unknown."""
    try:
        times = psutil.cpu_times(percpu=True)
        allowed = os.sched_getaffinity(0)  # as the header's cpu_count
    except (OSError, RuntimeError, ValueError, IndexError):
        return None
    if len(times) > max(allowed, default=0):  # else some core is offline: their numbers are not their places
        times = [each for number, each in enumerate(times) if number in allowed]
    busy_s = sum(each.user + each.nice + each.system + each.irq + each.softirq for each in times)
    return _Used(now_s, float(busy_s), float(sum(each.steal for each in times)), held_s)


def _machine_memory() -> tuple[int | None, int | None]:
    """Total, and available without swapping, in bytes; None where /proc/meminfo cannot be read."""
    try:
        memory = psutil.virtual_memory()
    except (OSError, KeyError):
        return None, None
    return memory.total, memory.available
