"""Reads memory and cores of the machine, limits of the run's control groups, OOM kills, and file systems.

Formats: proc_meminfo(5), proc_stat(5), proc_vmstat(5), Documentation/accounting/psi.rst in the Linux sources;
cgroups(7), version 1 and 2.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple

from tuimon.bounds import HELD
from tuimon.proc import procfs
from tuimon.proc.numa import core_list, core_numbers, cores_by_node
from tuimon.proc.processes import environment_of
from tuimon.records import PIDS, MachineMemory, PlacedProcess, Record, ResourceUse
from tuimon.sources.base import Source
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.timeouts import CallWithTimeout

#: The fields of a core's line in /proc/stat: user, nice, system, irq and softirq, not idle and iowait; and stolen.
_BUSY, _STOLEN = (0, 1, 2, 5, 6), 7
_CORE = re.compile(r"^cpu(\d+) (.*)", re.MULTILINE)
#: cgroup version 1 writes "no limit" as a number near 2^63.
_NO_LIMIT_BYTES = 1 << 60
_MOUNT = "/sys/fs/cgroup"


class GroupCpu(NamedTuple):
    """The CPU time that a control group may use."""

    limit_cores: float
    throttled_s: float  # core-seconds that the limit took from threads ready to run, since the group was made


#: By controller: the files of the limit and the use, and the entry of memory.stat for the cache that can be freed at
#: once; of version 2, then of version 1.
_FILES = {
    "memory": (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ),
    PIDS: (("pids.max", "pids.current", ""), ("pids.max", "pids.current", "")),
}


class ControlGroups:
    """The control groups of one process and all above them: each limits it. In a container some may be hidden."""

    def __init__(self, listed: str, root: str) -> None:
        """``listed``: what /proc/PID/cgroup holds; ``root``: where /proc and /sys are."""
        self._listed = listed
        self._root = root

    def uses(self, controller: str) -> Iterator[ResourceUse]:
        for folder, is_old in self._folders(controller):
            limit_name, used_name, cache_name = _FILES[controller][is_old]
            limit, used = (procfs.read_text(f"{folder}/{name}").strip() for name in (limit_name, used_name))
            if limit.isdigit() and used.isdigit() and int(limit) < _NO_LIMIT_BYTES:
                cache = counters_in(procfs.read_text(f"{folder}/memory.stat")).get(cache_name, 0) if cache_name else 0
                yield ResourceUse(controller, max(0, int(used) - cache), int(limit))

    def tightest_cpu(self) -> GroupCpu | None:
        """The group with the lowest limit; None if there is none."""
        groups: list[GroupCpu] = []
        for folder, is_old in self._folders("cpu"):
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if is_old else ("cpu.max",)
            words = " ".join(procfs.read_text(f"{folder}/{name}") for name in names).split()
            if len(words) == 2 and all(word.isdigit() and int(word) for word in words):  # else "max", or -1
                known = counters_in(procfs.read_text(f"{folder}/cpu.stat"))
                throttled_s = known.get("throttled_time", 0) / 1e9 if is_old else known.get("throttled_usec", 0) / 1e6
                groups.append(GroupCpu(int(words[0]) / int(words[1]), throttled_s))
        return min(groups, default=None)

    def oom_counter(self) -> str | None:
        """The file that counts the processes of its own group which the kernel has killed for memory."""
        names = ("memory.events", "memory.oom_control")
        files = (f"{folder}/{names[is_old]}" for folder, is_old in self._folders("memory"))
        return next((file for file in files if oom_kills(file) is not None), None)

    def _folders(self, controller: str) -> Iterator[tuple[str, bool]]:
        """The folder of each group and of those above it, and whether it is of version 1."""
        for line in self._listed.splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            mount = f"{_MOUNT}/{controllers if controller == 'cpu' else controller}" if controllers else _MOUNT
            parts = [part for part in path.split("/") if part not in ("", "..")]
            for depth in range(len(parts), -1, -1):
                yield "/".join([self._root + mount, *parts[:depth]]), bool(controllers)


def oom_kills(counter: str) -> int | None:
    """The count of such a file; None if there is none."""
    return counters_in(procfs.read_text(counter)).get("oom_kill")


def counters_in(text: str) -> dict[str, int]:
    """The numbers of lines such as ``MemFree: 1024 kB``, by the first word."""
    lines = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _free(use: ResourceUse) -> int:
    return use.limit - use.used


class MachineSource(Source):
    """One record every five seconds."""

    name = "machine"
    period_s = 5.0  # swapping is a rate over this long

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic, root: str = "/") -> None:
        """``root``: where /proc and /sys are."""
        self._table = table
        self._clock = clock
        self._root = root.rstrip("/")
        self._before: tuple[float, dict[Hashable, float]] = (0.0, {})  # counters, and when they were read
        self._of_run: frozenset[int] = frozenset()  # the cores that it may use, or has used; empty: not known
        self._nodes = cores_by_node(self._root)
        self._listed: dict[str, None] = {}
        self._killed: dict[str, tuple[int, int]] = {}  # by file that counts, at first and lately
        self._file_systems = CallWithTimeout[list[ResourceUse]]("tuimon-file-systems")

    def read(self) -> Iterable[Record]:
        """The record that is due; none if nothing can be read."""
        now_s = self._clock()
        total_bytes, available_bytes = self._machine_memory()
        groups = [ControlGroups(listed, self._root) for listed in self._listed_groups()]
        group = min((use for each in groups for use in each.uses("memory")), key=_free, default=None)
        limit = min((cpu for each in groups if (cpu := each.tightest_cpu()) is not None), default=None)
        own, self._of_run = frozenset(os.sched_getaffinity(0)), self._cores_of_run() or self._of_run
        of_run = self._of_run
        window_s, per_s = self._rates(now_s, dict(self._counters(limit, of_run or own)))
        busy, stolen, held = (per_s.get(name) for name in (("busy", of_run or own), ("stolen", of_run or own), "held"))
        if total_bytes is None and group is None:
            return
        yield MachineMemory(
            t=round(now_s, 3),
            pid=0,
            window_s=round(window_s, 3),
            total_bytes=total_bytes,
            available_bytes=available_bytes,
            limit_bytes=group.limit if group else None,
            limit_used_bytes=group.used if group else None,
            swap_in_bytes_per_s=round(per_s["pswpin"] * procfs.PAGE_BYTES) if "pswpin" in per_s else None,
            swap_out_bytes_per_s=round(per_s["pswpout"] * procfs.PAGE_BYTES) if "pswpout" in per_s else None,
            stalled_ratio=self._stalled_ratio(),
            busy_cores=round(busy, 3) if busy is not None else None,
            stolen_cores=round(stolen, 3) if stolen is not None else None,
            cpu_limit_cores=round(limit.limit_cores, 3) if limit else None,
            held_cores=round(held, 3) if held is not None else None,
            run_cores=core_list(of_run) if of_run and of_run != own else None,
            placed=list(self._placements()) if len(self._nodes) > 1 else [],
            oom_kills=self._oom_kills(groups),
            resources=[*self._tasks(groups), *self._space_use()],
        )

    def _tasks(self, groups: Iterable[ControlGroups]) -> Iterable[ResourceUse]:
        """Threads and processes under the nearest limit: that of a control group, the user, or the machine.

        Only the run's threads among the user's are known; root is exempt from the user's limit.
        """
        pid = self._table.root_pid
        found = [use for group in groups for use in group.uses(PIDS)]
        running = self._text("/proc/loadavg").split()[3:4]
        limits = [self._text(f"/proc/sys/kernel/{name}").strip() for name in ("threads-max", "pid_max")]
        if running and all(limit.isdigit() for limit in limits):
            found.append(ResourceUse(PIDS, int(running[0].partition("/")[2]), min(map(int, limits))))
        if os.geteuid() and (limit := procfs.limit_of(pid, "Max processes")) is not None:
            stats = map(procfs.read_process_stat, self._table.pids()[:HELD])
            found.append(ResourceUse(PIDS, sum(stat.threads for stat in stats if stat is not None), limit))
        return [min(found, key=_free)] if found else []

    def _space_use(self) -> Iterable[ResourceUse]:
        """Shared memory, and the file systems of the training's working and temporary folders, each once."""
        pid = min(self._table.trainers(), default=self._table.root_pid)
        # a file system of a network may hang
        return self._file_systems.call(lambda: list(_file_systems(f"{self._root}/proc/{pid}", pid)), 0.5) or ()

    def _rates(self, now_s: float, counters: dict[Hashable, float]) -> tuple[float, dict[Hashable, float]]:
        """Seconds since the last read, and the growth per second of the counters that were known then."""
        before_s, before = self._before
        self._before = now_s, counters
        span_s = now_s - before_s
        if not before or span_s <= 0:
            return self.period_s, {}
        return span_s, {name: max(0.0, now - before[name]) / span_s for name, now in counters.items() if name in before}

    def _counters(self, limit: GroupCpu | None, allowed: frozenset[int]) -> Iterator[tuple[Hashable, float]]:
        """Pages swapped, and core-seconds since boot: those of all programs on the cores that the run may use."""
        counts = self._fields("/proc/vmstat")
        yield from ((name, counts[name]) for name in ("pswpin", "pswpout") if name in counts)
        if limit is not None:
            yield "held", limit.throttled_s
        cores = self._cores()
        counted = allowed if allowed <= cores.keys() else cores.keys()  # a container may renumber its cores
        try:
            ticks = [[int(cores[number][place]) for place in (*_BUSY, _STOLEN)] for number in counted]
        except (ValueError, IndexError):
            return
        if cores:
            yield ("busy", allowed), sum(sum(core[:-1]) for core in ticks) / procfs.TICKS_PER_S
            yield ("stolen", allowed), sum(core[-1] for core in ticks) / procfs.TICKS_PER_S

    def _listed_groups(self) -> Iterable[str]:
        """The control groups of the run's root and of its trainers, as the kernel lists them, or listed them last."""
        pids = [self._table.root_pid, *sorted(self._table.trainers() - {self._table.root_pid})]
        self._listed = dict.fromkeys(filter(None, (self._text(f"/proc/{pid}/cgroup") for pid in pids))) or self._listed
        return self._listed

    def _oom_kills(self, groups: Iterable[ControlGroups]) -> int | None:
        """How many processes of the run's groups the kernel has killed for memory since the groups were found."""
        counters = {counter for group in groups if (counter := group.oom_counter()) is not None}
        for counter in counters | self._killed.keys():
            if (count := oom_kills(counter)) is not None:
                self._killed[counter] = (self._killed.get(counter, (count, count))[0], count)
        return sum(count - first for first, count in self._killed.values()) if self._killed else None

    def _cores_of_run(self) -> frozenset[int]:
        """The cores that any of its training processes and workers may use; empty if that is not known."""
        roles = self._table.roles.items()
        allowed = [self._allowed_cores(pid) for pid, role in roles if role in ("trainer", "worker")]
        return frozenset().union(*allowed).intersection(self._cores())  # a mask may have cores that are offline

    def _cores(self) -> dict[int, list[str]]:
        """The counters of each core."""
        return {int(core[1]): core[2].split() for core in _CORE.finditer(self._text("/proc/stat"))}

    def _allowed_cores(self, pid: int) -> frozenset[int]:
        """The cores that a process's main thread may use, by its affinity and cpuset."""
        return core_numbers(procfs.read_fields(f"{self._root}/proc/{pid}/status").get("Cpus_allowed_list", ""))

    def _placements(self) -> Iterable[PlacedProcess]:
        """The NUMA nodes that training processes run on."""
        for pid in sorted(self._table.trainers())[:HELD]:
            stat = procfs.parse_stat(self._text(f"/proc/{pid}/stat").encode())
            node = next((node for node, cores in self._nodes.items() if stat is not None and stat.core in cores), None)
            allowed = self._allowed_cores(pid)
            nodes = [number for number, cores in self._nodes.items() if cores & allowed]
            if node is not None and nodes:
                yield PlacedProcess(pid, node, nodes)

    def _machine_memory(self) -> tuple[int | None, int | None]:
        """Total, and available without swapping, in bytes; None if /proc/meminfo cannot be read."""
        known = self._fields("/proc/meminfo")
        total, available, free = (known.get(f"{name}:") for name in ("MemTotal", "MemAvailable", "MemFree"))
        if total is None or available is None:
            return None, None
        if available > total and free is not None:  # in some containers MemAvailable is the host's
            available = free
        return total << 10, available << 10

    def _stalled_ratio(self) -> float | None:
        """``some avg10`` of the kernel's pressure figures; None if it is built without them."""
        share = re.search(r"^some avg10=(\d+\.\d+)", self._text("/proc/pressure/memory"), re.MULTILINE)
        return round(float(share[1]) / 100, 4) if share is not None else None

    def _fields(self, path: str) -> dict[str, int]:
        return counters_in(self._text(path))

    def _text(self, path: str) -> str:
        return procfs.read_text(self._root + path)


def _file_systems(process: str, pid: int) -> Iterator[ResourceUse]:
    """The file systems that a process uses; ``process``: its folder in /proc, which shows paths as it sees them."""
    seen: set[str] = set()
    for folder in ("/dev/shm", None, environment_of(pid).get("TMPDIR", "/tmp")):
        try:
            path, root = folder or os.readlink(f"{process}/cwd"), f"{process}/root"
            device = os.stat(root + path).st_dev
            while path != "/" and os.stat(root + os.path.dirname(path)).st_dev == device:
                path = os.path.dirname(path)  # up to where it is mounted
            found = os.statvfs(root + path)
        except OSError:
            continue
        if found.f_blocks and path not in seen:
            seen.add(path)
            yield ResourceUse(path, (found.f_blocks - found.f_bavail) * found.f_frsize, found.f_blocks * found.f_frsize)
