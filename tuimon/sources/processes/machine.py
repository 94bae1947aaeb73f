"""The machine's memory, what the run's control group leaves of it, and how many of its cores are busy.

psutil has the memory. It has no control groups and no pressure figures, reports swapping as 0 where the kernel does not
count it, and takes a page for 4 KiB: those are read here. Formats: proc_vmstat(5), cgroups(7),
Documentation/accounting/psi.rst in the Linux sources.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import psutil

from tuimon.proc import procfs
from tuimon.records import MachineMemory, Record
from tuimon.sources.process_table import ProcessTable

#: Between two records; swapping is a rate over this long.
_PERIOD_S = 5.0
#: cgroup version 1 writes "no limit" as a number near 2^63.
_NO_LIMIT_BYTES = 1 << 60
#: Levels of control groups that are read at most.
_DEEPEST = 32


class GroupMemory(NamedTuple):
    """The memory that a control group may use, and uses."""

    limit_bytes: int
    used_bytes: int

    @property
    def left_bytes(self) -> int:
        """What is left until the limit."""
        return self.limit_bytes - self.used_bytes


class MachineSource:
    """One record every five seconds."""

    name = "machine"
    period_s = _PERIOD_S

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic, root: str = "/") -> None:
        """``root``: where /proc and /sys are; psutil reads its own ``PROCFS_PATH``."""
        self._table = table
        self._clock = clock
        self._root = root.rstrip("/")
        self._swapped: tuple[float, int, int] | None = None  # t, bytes in and out since boot
        self._used: tuple[float, float] | None = None  # t, CPU time of all programs since boot

    def read(self) -> Iterable[Record]:
        """The record that is due; none where nothing can be read."""
        now_s = self._clock()
        total_bytes, available_bytes = _machine_memory()
        window_s, swap_in, swap_out = self._swapping(now_s)
        group = self._tightest_group()
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
            busy_cores=self._busy_cores(now_s),
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

    def _busy_cores(self, now_s: float) -> float | None:
        """Since the last read; None at the first."""
        used_s = _used_cpu_s()
        before, self._used = self._used, (now_s, used_s) if used_s is not None else None
        if before is None or used_s is None or now_s <= before[0]:
            return None
        return round(max(0.0, used_s - before[1]) / (now_s - before[0]), 3)

    def _stalled_ratio(self) -> float | None:
        """``some avg10`` of the kernel's pressure figures; None where it is built without them."""
        for line in self._text("/proc/pressure/memory").splitlines():
            kind, *pairs = line.split()
            share = dict(pair.split("=", 1) for pair in pairs if "=" in pair).get("avg10") if kind == "some" else None
            if share is not None:
                return round(float(share) / 100, 4)
        return None

    def _tightest_group(self) -> GroupMemory | None:
        """Of the control groups that the run's root is in, the one with the least left; None without a limit."""
        groups: list[GroupMemory] = []
        for line in self._text(f"/proc/{self._table.root_pid}/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                groups += self._groups("/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                groups += self._groups("/sys/fs/cgroup/memory", path, *names)
        return min(groups, key=lambda group: group.left_bytes, default=None)

    def _groups(self, mount: str, path: str, limit_name: str, used_name: str, cache_name: str) -> Iterable[GroupMemory]:
        """A control group and all above it: each of them limits it. In a container the path may not be there."""
        parts = [part for part in path.split("/") if part not in ("", "..")][:_DEEPEST]
        for depth in range(len(parts), -1, -1):
            folder = "/".join([mount, *parts[:depth]])
            limit, used = self._text(f"{folder}/{limit_name}").strip(), self._text(f"{folder}/{used_name}").strip()
            if limit.isdigit() and used.isdigit() and int(limit) < _NO_LIMIT_BYTES:
                cache = self._fields(f"{folder}/memory.stat").get(cache_name, 0)
                yield GroupMemory(int(limit), max(0, int(used) - cache))

    def _fields(self, path: str) -> dict[str, int]:
        """Numbers by name, of a file with one of each a line."""
        lines = (line.split() for line in self._text(path).splitlines())
        return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}

    def _text(self, path: str) -> str:
        return (procfs.read_bytes(self._root + path) or b"").decode("ascii", "replace")


def _used_cpu_s() -> float | None:
    """CPU time of all programs, of the kernel too, since boot; None where it cannot be read."""
    try:
        times = psutil.cpu_times()
    except (OSError, RuntimeError, ValueError, IndexError):
        return None
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def _machine_memory() -> tuple[int | None, int | None]:
    """Total, and available without swapping, in bytes; None where /proc/meminfo cannot be read."""
    try:
        memory = psutil.virtual_memory()
    except (OSError, KeyError):
        return None, None
    return memory.total, memory.available
