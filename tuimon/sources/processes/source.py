"""The run's processes and their threads: what is there, what each is, and how much CPU it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from tuimon.proc import procfs
from tuimon.proc.pythons import is_python
from tuimon.proc.ring_facts import RingFacts
from tuimon.records import Notice, Process, ProcessRole, Record, Threads
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.own_cost import CostMeter
from tuimon.sources.processes.roles import Kin, roles_of, without_markers
from tuimon.sources.processes.threads import ThreadMeter

_PROCESSES = 512
_NEW_OTHERS_PER_LOOK = 16
#: A program may replace itself by another of the same name: its command line is read again at every so many looks.
_REREAD_LOOKS = 10
#: So many Threads records a second and trainer for workers and others together: what the log has room for. None waits
#: longer than 5 s, but for idle others, which wait 10 s.
_THREADS_PER_S = 1.5
_LONGEST_WAIT_S = 5.0
_IDLE_WAIT_S = 10.0
_IDLE_RATIO = 0.01


@dataclass(slots=True)
class _Followed:
    """One process of the run."""

    start_ticks: int
    stat: procfs.Stat
    kin: Kin
    environ: dict[str, str]
    meter: ThreadMeter
    looks: int = 0
    looked_s: float = 0.0
    reported: Process | None = None
    window_from_s: float | None = None
    window_cpu_ticks: int = 0

    def busy(self, now_s: float) -> bool:
        """Whether it has used a hundredth of a core since its last window."""
        if self.window_from_s is None or now_s <= self.window_from_s:
            return True
        ticks = self.stat.cpu_ticks - self.window_cpu_ticks
        return ticks / procfs.TICKS_PER_S >= _IDLE_RATIO * (now_s - self.window_from_s)


class ProcessSource:
    """Follows the descendants of the run's root by /proc alone; under 2 ms CPU a look at 10 processes, 60 threads."""

    name = "processes"

    def __init__(self, table: ProcessTable, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.period_s = interval_s
        self._table = table
        self._clock = clock
        self._boot_unix_s = procfs.boot_unix_s()
        self._known: dict[int, _Followed] = {}
        self._cost = CostMeter(interval_s)
        self._left_out = self._said_crowded = False

    def read(self) -> Iterable[Record]:
        """What appeared, changed or ended; the threads of the processes that are due; tuimon's own cost."""
        now_s = self._clock()
        out: list[Record] = list(self._gone(now_s))
        self._discover()
        out.extend(self._say_if_crowded(now_s))
        kin = {pid: process.kin for pid, process in self._known.items()}
        roles = roles_of(kin, self._table.trainers(), self._table.roles)
        self._table.publish({pid: process.start_ticks for pid, process in self._known.items()}, roles)
        out.extend(self._changed(roles, now_s))
        out.extend(self._threads(roles, now_s))
        out.extend(self._cost.read(now_s, self._table.sampler_cpu_s))
        return out

    def close(self) -> None:
        """Nothing is held open."""

    # ---- which processes there are

    def _gone(self, now_s: float) -> Iterable[Record]:
        for pid, process in list(self._known.items()):
            stat = procfs.read_stat(pid)
            if stat is not None and stat.start_ticks == process.start_ticks and stat.state not in "ZX":
                self._refresh(pid, process, stat)
                continue
            del self._known[pid]
            if process.reported is not None:
                yield _again(process.reported, now_s, ended=True)

    def _refresh(self, pid: int, process: _Followed, stat: procfs.Stat) -> None:
        renamed = stat.comm != process.stat.comm
        process.stat = stat
        process.looks += 1
        if renamed or not process.kin.command or process.looks % _REREAD_LOOKS == 0:
            process.kin, process.environ = _meet(pid, stat)
        elif stat.ppid != process.kin.ppid:
            process.kin = process.kin._replace(ppid=stat.ppid)

    def _discover(self) -> None:
        """All descendants of what is known, of the root and of what the markers found."""
        self._left_out = False
        for pid in [self._table.root_pid, *(pid for pid, _ in self._table.named)]:
            self._add(pid)
        waiting = list(self._known)
        while waiting:
            pid = waiting.pop()
            process = self._known[pid]
            # when its counters are read, not when this look began: on a loaded machine much may lie between
            process.looked_s = self._clock()
            for child in process.meter.look():
                if child not in self._known and self._add(child):
                    waiting.append(child)

    def _add(self, pid: int) -> bool:
        if pid in self._known:
            return False
        if len(self._known) >= _PROCESSES:
            self._left_out = True
            return False
        stat = procfs.read_stat(pid)
        if stat is None or stat.state in "ZX" or not self._is_ours(pid, stat.start_ticks):
            return False
        kin, environ = _meet(pid, stat)
        self._known[pid] = _Followed(stat.start_ticks, stat, kin, environ, ThreadMeter(pid))
        return True

    def _is_ours(self, pid: int, start_ticks: int) -> bool:
        """The root and what was added are named by pid and start time; any other comes from its parent's own list."""
        if pid == self._table.root_pid:
            return self._table.root_start_ticks in (None, start_ticks)
        named = [start for added, start in self._table.named if added == pid]
        return not named or start_ticks in named

    def _say_if_crowded(self, now_s: float) -> Iterable[Record]:
        if self._left_out == self._said_crowded:
            return
        self._said_crowded = self._left_out
        level: Literal["ok", "info"] = "info" if self._left_out else "ok"
        left_out = f"the run has more than {_PROCESSES} processes: the latest are not shown"
        message = left_out if self._left_out else "all processes are shown"
        yield Notice(t=now_s, pid=0, source=self.name, level=level, message=message)

    # ---- what is said of them

    def _changed(self, roles: dict[int, ProcessRole], now_s: float) -> Iterable[Record]:
        room = _NEW_OTHERS_PER_LOOK
        for pid, process in self._known.items():
            role = roles[pid]
            if process.reported is None and role == "other":
                # shells start many that live for a blink
                if room <= 0 or (not process.kin.python and process.looks == 0 and pid != self._table.root_pid):
                    continue
                room -= 1
            record = self._describe(pid, process, role, now_s)
            if process.reported is None or record != _again(process.reported, now_s):
                process.reported = record
                yield record

    def _describe(self, pid: int, process: _Followed, role: ProcessRole, now_s: float) -> Process:
        facts = self._table.facts.get(pid)
        kin, known = process.kin, facts or RingFacts()
        reason = without_markers(kin, role, process.environ, self._table.run_id is not None) if facts is None else None
        return Process(
            t=round(now_s, 3),
            pid=pid,
            ppid=kin.ppid,
            start_unix_s=round(self._boot_unix_s + process.start_ticks / procfs.TICKS_PER_S, 2),
            command=list(kin.command),
            role=role,
            markers=facts is not None,
            markers_reason=reason,
            rank=kin.rank if known.rank is None else known.rank,
            world_size=_number(process.environ.get("WORLD_SIZE")) if known.world_size is None else known.world_size,
            python=known.python,
            torch=known.torch,
            gpu_uuids=list(known.gpu_uuids),
            parameter_dtypes=list(known.parameter_dtypes),
            tf32=known.tf32,
        )

    def _threads(self, roles: dict[int, ProcessRole], now_s: float) -> Iterable[Record]:
        trainers = sum(role == "trainer" for role in roles.values())
        idle = {pid for pid, process in self._known.items() if roles[pid] == "other" and not process.busy(now_s)}
        wait_s = (len(self._known) - trainers - len(idle)) / (_THREADS_PER_S * max(trainers, 1))
        for pid, process in self._known.items():
            if process.reported is None:
                continue
            if process.window_from_s is None:
                self._begin_window(process)
                process.meter.end_window(1.0)
                continue
            due_s = 0.0 if roles[pid] == "trainer" else _IDLE_WAIT_S if pid in idle else min(wait_s, _LONGEST_WAIT_S)
            window_s = process.looked_s - process.window_from_s
            if window_s > 0 and window_s >= due_s - self.period_s / 10:  # looks are not to the millisecond
                yield self._window(pid, process, window_s, now_s)

    def _window(self, pid: int, process: _Followed, window_s: float, now_s: float) -> Threads:
        rows, folded, cpu_ratio = process.meter.end_window(window_s)
        if cpu_ratio is None:  # threads have come or gone: the process's own count, in ticks of 10 ms
            ticks = process.stat.cpu_ticks - process.window_cpu_ticks
            cpu_ratio = round(max(ticks, 0) / procfs.TICKS_PER_S / window_s, 3)
        self._begin_window(process)
        return Threads(
            t=round(now_s, 3),
            pid=pid,
            window_s=round(window_s, 3),
            cpu_ratio=cpu_ratio,
            rss_bytes=process.stat.rss_bytes,
            threads=rows,
            folded=folded,
        )

    def _begin_window(self, process: _Followed) -> None:
        process.window_from_s = process.looked_s
        process.window_cpu_ticks = process.stat.cpu_ticks


def _meet(pid: int, stat: procfs.Stat) -> tuple[Kin, dict[str, str]]:
    environ = procfs.read_environ(pid)
    command = tuple(procfs.read_command(pid))
    kin = Kin(pid, stat.ppid, stat.comm, command, is_python(pid), _number(environ.get("RANK")))
    wanted = ("TUIMON_RUN", "TUIMON_MARKERS", "WORLD_SIZE")
    short = {key: environ[key] for key in wanted if key in environ}
    return kin, short or ({"": ""} if environ else {})  # empty: it could not be read


def _again(record: Process, now_s: float, *, ended: bool = False) -> Process:
    """The same, said now."""
    return msgspec.structs.replace(record, t=round(now_s, 3), ended=ended)


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None
