"""The run's control groups: their limits on memory and CPU time, and who was killed (cgroups(7); version 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from tuimon.proc import procfs

#: cgroup version 1 writes "no limit" as a number near 2^63.
_NO_LIMIT_BYTES = 1 << 60
#: Levels of control groups that are read at most.
_DEEPEST = 32
_MOUNT = "/sys/fs/cgroup"


class GroupMemory(Struct, frozen=True, gc=False):
    """The memory that a control group may use, and uses."""

    limit_bytes: int
    used_bytes: int

    @property
    def left_bytes(self) -> int:
        """The bytes left until the limit."""
        return self.limit_bytes - self.used_bytes


class GroupCpu(NamedTuple):
    """The CPU time that a control group may use."""

    limit_cores: float
    throttled_s: float  # since it was made, of all cores: that threads ready to run were kept from them


class ControlGroups:
    """The groups of one process, and all above these: each of them limits it. In a container some may be hidden."""

    def __init__(self, listed: str, root: str) -> None:
        """``listed``: what /proc/PID/cgroup holds; ``root``: where /proc and /sys are."""
        self._listed = listed
        self._root = root

    def tightest_memory(self) -> GroupMemory | None:
        """The group with the least left; None without a limit."""
        groups: list[GroupMemory] = []
        for controllers, path in self._paths():
            if not controllers:
                groups += self._memory(_MOUNT, path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                groups += self._memory(f"{_MOUNT}/memory", path, *names)
        return min(groups, key=lambda group: group.left_bytes, default=None)

    def tightest_cpu(self) -> GroupCpu | None:
        """The group with the lowest limit; None without one."""
        groups: list[GroupCpu] = []
        for controllers, path in self._paths():
            if not controllers:
                groups += self._cpu(_MOUNT, path, ("cpu.max",), "throttled_usec", 1e6)
            elif "cpu" in controllers.split(","):
                names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                groups += self._cpu(f"{_MOUNT}/{controllers}", path, names, "throttled_time", 1e9)
        return min(groups, default=None)

    def oom_counter(self) -> str | None:
        """The file that counts the processes of its own group which the kernel has killed for memory."""
        for controllers, path in self._paths():
            is_old = "memory" in controllers.split(",")
            if not controllers or is_old:
                mount, name = (f"{_MOUNT}/memory", "memory.oom_control") if is_old else (_MOUNT, "memory.events")
                files = (f"{folder}/{name}" for folder in _folders(mount, path))
                found = next((file for file in files if oom_kills(self._root + file) is not None), None)
                if found is not None:
                    return self._root + found
        return None

    def _paths(self) -> Iterator[tuple[str, str]]:
        """Controllers (none: version 2) and path of each group."""
        for line in self._listed.splitlines():
            _, controllers, path = line.split(":", 2)
            yield controllers, path

    def _memory(self, mount: str, path: str, limit_name: str, used_name: str, cache_name: str) -> Iterable[GroupMemory]:
        for folder in _folders(mount, path):
            limit, used = self._text(f"{folder}/{limit_name}").strip(), self._text(f"{folder}/{used_name}").strip()
            if limit.isdigit() and used.isdigit() and int(limit) < _NO_LIMIT_BYTES:
                cache = self._fields(f"{folder}/memory.stat").get(cache_name, 0)
                yield GroupMemory(int(limit), max(0, int(used) - cache))

    def _cpu(self, mount: str, path: str, names: tuple[str, ...], throttled: str, per_s: float) -> Iterable[GroupCpu]:
        for folder in _folders(mount, path):
            words = " ".join(self._text(f"{folder}/{name}") for name in names).split()
            if len(words) == 2 and all(word.isdigit() and int(word) for word in words):  # else "max", or -1
                since = self._fields(f"{folder}/cpu.stat").get(throttled, 0)
                yield GroupCpu(int(words[0]) / int(words[1]), since / per_s)

    def _fields(self, path: str) -> dict[str, int]:
        return fields(self._text(path))

    def _text(self, path: str) -> str:
        return text(self._root + path)


def _folders(mount: str, path: str) -> Iterator[str]:
    """A group's folder and those above it."""
    parts = [part for part in path.split("/") if part not in ("", "..")][:_DEEPEST]
    for depth in range(len(parts), -1, -1):
        yield "/".join([mount, *parts[:depth]])


def oom_kills(counter: str) -> int | None:
    """The count of such a file; None where there is none."""
    return fields(text(counter)).get("oom_kill")


def fields(of: str) -> dict[str, int]:
    """Numbers by name, of a file with one of each a line."""
    lines = (line.split() for line in of.splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def text(path: str) -> str:
    """A file of the kernel's; empty where it cannot be read."""
    return (procfs.read_bytes(path) or b"").decode("ascii", "replace")
