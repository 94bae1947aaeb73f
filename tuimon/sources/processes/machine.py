"""The machine's memory, and what the run's control group leaves of it, from /proc and /sys alone.

Formats: proc_meminfo(5), proc_vmstat(5), cgroups(7), Documentation/accounting/psi.rst in the Linux sources.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tuimon.proc import procfs
from tuimon.records import MachineMemory, Record
from tuimon.sources.process_table import ProcessTable

_PERIOD_S = 5.0
#: cgroup version 1 writes "no limit" as a number near 2^63.
_NO_LIMIT_BYTES = 1 << 60
_DEEPEST = 32


class Room(NamedTuple):
    """What a control group may use, and does."""

    limit_bytes: int
    used_bytes: int

    @property
    def left_bytes(self) -> int:
        """Until the limit."""
        return self.limit_bytes - self.used_bytes


class MachineSource:
    """One record every five seconds."""

    name = "machine"
    period_s = _PERIOD_S

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic, root: str = "/") -> None:
        """``root``: where /proc and /sys are."""
        self._table = table
        self._clock = clock
        self._root = root.rstrip("/")
        self._swapped: tuple[float, int, int] | None = None  # t, bytes in and out since boot

    def read(self) -> Iterable[Record]:
        """The record that is due; none where /proc tells nothing."""
        now_s = self._clock()
        memory = self._fields("/proc/meminfo")
        total, available = memory.get("MemTotal:"), memory.get("MemAvailable:")
        window_s, swap_in, swap_out = self._swapping(now_s)
        room = self._room()
        if total is None and room is None:
            return
        yield MachineMemory(
            t=round(now_s, 3),
            pid=0,
            window_s=round(window_s, 3),
            total_bytes=None if total is None else 1024 * total,
            available_bytes=None if available is None else 1024 * available,
            limit_bytes=room.limit_bytes if room else None,
            limit_used_bytes=room.used_bytes if room else None,
            swap_in_bytes_per_s=swap_in,
            swap_out_bytes_per_s=swap_out,
            stalled_ratio=self._stalled(),
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _swapping(self, now_s: float) -> tuple[float, float | None, float | None]:
        """Seconds since the last look, bytes a second in and out; None at the first."""
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

    def _stalled(self) -> float | None:
        """``some avg10`` of the kernel's pressure figures; None where it is built without them."""
        for line in self._text("/proc/pressure/memory").splitlines():
            kind, *pairs = line.split()
            share = dict(pair.split("=", 1) for pair in pairs if "=" in pair).get("avg10") if kind == "some" else None
            if share is not None:
                return round(float(share) / 100, 4)
        return None

    def _room(self) -> Room | None:
        """Of the control groups that the run's root is in, the one with the least room left; None without a limit."""
        rooms: list[Room] = []
        for line in self._text(f"/proc/{self._table.root_pid}/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                rooms += self._rooms("/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                rooms += self._rooms("/sys/fs/cgroup/memory", path, *names)
        return min(rooms, key=lambda room: room.left_bytes, default=None)

    def _rooms(self, mount: str, path: str, limit_name: str, used_name: str, cache_name: str) -> Iterable[Room]:
        """Of a control group and all above it: each of them limits it. In a container the path may not be there."""
        parts = [part for part in path.split("/") if part not in ("", "..")][:_DEEPEST]
        for depth in range(len(parts), -1, -1):
            folder = "/".join([mount, *parts[:depth]])
            limit, used = self._text(f"{folder}/{limit_name}").strip(), self._text(f"{folder}/{used_name}").strip()
            if limit.isdigit() and used.isdigit() and int(limit) < _NO_LIMIT_BYTES:
                cache = self._fields(f"{folder}/memory.stat").get(cache_name, 0)
                yield Room(int(limit), max(0, int(used) - cache))

    def _fields(self, path: str) -> dict[str, int]:
        """Lines of a name and a number."""
        lines = (line.split() for line in self._text(path).splitlines())
        return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}

    def _text(self, path: str) -> str:
        return (procfs.read_bytes(self._root + path) or b"").decode("ascii", "replace")
