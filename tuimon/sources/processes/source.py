"""Follows the run's processes and their threads: which there are, their roles, and how much CPU they use."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from tuimon.proc import procfs
from tuimon.proc.processes import has_torch, start_unix_s, waits_for_child
from tuimon.proc.procfs import TICKS_PER_S, read_process_stat, start_ticks
from tuimon.proc.ring_facts import RingFacts
from tuimon.records import Cost, Notice, Process, ProcessRole, Record
from tuimon.sources.base import SELDOM_S, Source
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.followed import ChildrensCpu, FollowedProcess, ThreadMeter
from tuimon.sources.processes.roles import (
    WORKER_THREAD,
    ProcessFacts,
    Variables,
    read_facts,
    roles_of,
    why_no_markers,
    without_hooks,
)
from tuimon.sources.window_lengths import SETTLING_S, longest_intervals
from tuimon.text import plain

#: Most processes that are followed: records stay bounded whatever the run starts.
_PROCESSES = 512
#: Threads records a second and trainer for workers and others together: what the log has room for. None waits
#: longer than 5 s, but for idle others, which wait 10 s.
_THREADS_PER_S = 1.5
_LONGEST_WAIT_S = 5.0
_IDLE_WAIT_S = 10.0
#: Share of the period below which a window is left to grow: a monitor that was stopped makes up for the read it missed,
#: and then the next one is due, perhaps within the millisecond to which lengths are written.
_MIN_PERIOD_PART = 0.1


class CostMeter:
    """Measures the resources that tuimon itself uses, every two seconds."""

    def __init__(self, interval_s: float, own_cpu_s: Callable[[], float] = time.process_time) -> None:
        self._own_cpu_s = own_cpu_s
        self._past: deque[tuple[float, float, float]] = deque()  # t, own CPU, children's CPU
        self._every_s = max(SELDOM_S, interval_s)
        self._due_s = 0.0

    def read(self, now_s: float, sampler_cpu_s: float) -> Iterable[Cost]:
        """A Cost record when it is due."""
        self._past.append((now_s, self._own_cpu_s(), sampler_cpu_s))
        # the CPU of a py-spy child is known when it has ended
        while len(self._past) > 2 and self._past[1][0] <= now_s - 10.0:
            self._past.popleft()
        from_s, own_s, children_s = self._past[0]
        span_s = now_s - from_s
        if span_s <= 0 or now_s < self._due_s:
            return
        self._due_s = now_s + self._every_s - 0.1
        _, own_now_s, children_now_s = self._past[-1]
        sampler_ratio, stat = (children_now_s - children_s) / span_s, read_process_stat(os.getpid())
        yield Cost(
            t=round(now_s, 3),
            pid=0,
            window_s=round(span_s, 3),
            cpu_ratio=round((own_now_s - own_s) / span_s + sampler_ratio, 4),
            sampler_cpu_ratio=round(sampler_ratio, 4),
            rss_bytes=stat.rss_bytes if stat is not None else 0,
        )


class Descendants:
    """Finds new descendants of processes; takes 0.5 us per process of the machine, and 40 us per new one."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def find(self, known: Iterable[int]) -> list[int]:
        """The pids that appeared since the last call and descend from ``known`` ones, parents first.

        Never tuimon and its own children: a shell or a notebook server may be watched from its own terminal.
        """
        pids = set(procfs.pids()) - {os.getpid()}
        parents = {pid: parent_of(pid) for pid in pids - self._seen}
        self._seen = pids
        family = set(known)
        found: list[int] = []
        while True:
            children = sorted(pid for pid, parent in parents.items() if parent in family and pid not in family)
            if not children:
                return found
            family.update(children)
            found += children

    def forget(self, pids: Iterable[int]) -> None:
        """Treat these processes as new in the next ``find``."""
        self._seen.difference_update(pids)

    def forget_all(self) -> None:
        """Treat all processes as new: one that existed before has joined the run."""
        self._seen.clear()


def parent_of(pid: int) -> int | None:
    """The parent of a process; None if it has ended."""
    stat = procfs.read_process_stat(pid)
    return stat.ppid if stat is not None else None


class ProcessSource(Source):
    """Follows the descendants of the run's root; 2.5 ms CPU a read at 10 processes of 6 threads, 5.4 ms at 101 of 2."""

    name = "processes"

    def __init__(self, table: ProcessTable, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.period_s = interval_s
        self._table = table
        self._clock = clock
        self._began_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
        self.known: dict[int, FollowedProcess] = {}
        self._descendants = Descendants()
        self._cost = CostMeter(interval_s)
        self._left_out: set[int] = set()
        self._found_ended: list[Process] = []  # workers that had ended when they were found, not waited for yet
        self._reported_left_out = False
        self._reported: set[str] = set()  # notices that come once a run

    def read(self) -> Iterable[Record]:
        """Processes that appeared, changed or ended; the threads of those that are due; tuimon's own cost."""
        now_s = self._clock()
        out: list[Record] = list(self._follow(now_s))
        self.discover()
        out.extend(self._found_ended)
        self._found_ended.clear()
        facts = {pid: followed.facts for pid, followed in self.known.items()}
        table = self._table
        seen, loading = table.seen("training"), table.seen("loading")
        roles = roles_of(facts, table.trainers(), table.roles, waits_for_child, seen, loading)
        self._table.publish({pid: followed.start_ticks for pid, followed in self.known.items()}, roles)
        out.extend(self.changed(roles, now_s))
        out.extend(self._notices(roles, now_s))
        out.extend(self._threads(roles, now_s))
        out.extend(self._cost.read(now_s, self._table.sampler_cpu_s))
        return out

    def close(self) -> None:
        """Hold nothing open any more."""
        for followed in self.known.values():
            followed.meter.close()

    # ---- which processes there are

    def _follow(self, now_s: float) -> Iterable[Record]:
        """Read the threads of all known processes; returns the records of processes that have ended."""
        # a thread's counters are read now, not when this round began: on a loaded machine much may lie between
        mains = {pid: followed.read(self._clock()) for pid, followed in self.known.items()}
        ended = [pid for pid, main in mains.items() if main is None]
        self._descendants.forget(ended)
        for pid, main in mains.items():
            followed = self.known[pid]
            if main is not None:
                followed.refresh(main.name, orphaned=followed.facts.ppid in ended)
        for pid in ended:
            followed = self.known.pop(pid)
            followed.meter.close()
            self._table.running.pop(pid, None)
            if (parent := self.known.get(followed.facts.ppid)) is not None:
                parent.children.end_child(followed.reported_s + followed.children.reported_s)
            if followed.reported is not None:
                yield _updated(followed.reported, now_s, ended=True)
        for pid, followed in self.known.items():
            if (main := mains.get(pid)) is not None:
                followed.children.take(main.children_cpu_s)

    def discover(self) -> None:
        """Follow the root, the processes that the markers source named, and all new descendants."""
        if len(self.known) < _PROCESSES:
            self._descendants.forget(self._left_out)
            self._left_out.clear()
        named = [self._add(pid) for pid in (self._table.root_pid, *(pid for pid, _ in self._table.named))]
        if any(named):
            self._descendants.forget_all()
        for pid in self._descendants.find(self.known):
            self._add(pid)
        # parents are read before their children: a child that a parent has waited for is then seen to have ended
        self.known = dict(sorted(self.known.items(), key=lambda known: known[1].start_ticks))

    def _add(self, pid: int) -> bool:
        """Follow one more process; True if it is new, alive and of the run."""
        if pid in self.known:
            return False
        if len(self.known) >= _PROCESSES:
            self._left_out.add(pid)
            return False
        start, meter = start_ticks(pid), ThreadMeter(pid)
        if start is None or not self._is_ours(pid, start):
            return False
        followed = FollowedProcess(start, ProcessFacts(pid, 0, "", (), False), meter)
        main = followed.read(self._clock())
        facts = read_facts(pid, main.name) if main is not None else None
        if main is None or facts is None:
            meter.close()
            self._add_ended(followed)
            return False
        followed.facts = facts
        followed.reported_s = main.cpu_s
        if start < self._began_ticks:  # its use before is of no interest
            followed.children = ChildrensCpu(reported_s=main.children_cpu_s)
        elif (parent := self.known.get(facts.ppid)) is not None:
            parent.children.begin_child(main.cpu_s)
        self.known[pid] = followed
        return True

    def _add_ended(self, followed: FollowedProcess) -> None:
        """Note a worker that has ended: torch waits for those whose part of a stream is at its end with the others."""
        pid = followed.facts.pid
        stat = read_process_stat(pid)
        if stat is not None and stat.state == "Z" and stat.name == WORKER_THREAD:
            followed.facts = ProcessFacts(pid, stat.ppid, stat.name, (), True)
            ended = self._describe(pid, followed, "worker", self._clock())
            self._found_ended.append(msgspec.structs.replace(ended, ended=True))

    def _is_ours(self, pid: int, start: int) -> bool:
        """True if it is of the run: the root and named processes by start time; others were found as children."""
        if pid == self._table.root_pid:
            return self._table.root_start_ticks in (None, start)
        named = [ticks for number, ticks in self._table.named if number == pid]
        return not named or start in named

    def _notices(self, roles: dict[int, ProcessRole], now_s: float) -> Iterator[Notice]:
        """Notices of figures that cannot be measured, with the reason, each once: for the first process concerned."""
        if bool(self._left_out) != self._reported_left_out:
            self._reported_left_out = bool(self._left_out)
            level: Literal["ok", "info"] = "info" if self._left_out else "ok"
            left_out = f"the run has more than {_PROCESSES} processes: the latest are not shown"
            message = left_out if self._left_out else "all processes are shown"
            yield Notice(t=now_s, pid=0, source=self.name, level=level, message=message)
        if "no_hooks" in self._reported and self._table.facts and "hooks" not in self._reported:
            self._reported.add("hooks")
            yield Notice(t=now_s, pid=0, source="markers", level="ok", message="hooks are in")
        for key, source, message, hint in self._warnings(roles):
            if key not in self._reported:
                self._reported.add(key)
                yield Notice(t=now_s, pid=0, source=source, level="warning", message=message, hint=hint)

    def _warnings(self, roles: dict[int, ProcessRole]) -> Iterator[tuple[str, str, str, str]]:
        """Warnings, each with a key, its source, and a hint."""
        if not self.known and start_ticks(os.getpid()) is None:
            message = "/proc shows no processes here: threads, stacks, markers, steps and phases cannot be read"
            hint = "Mount it: mount -t proc proc /proc, or start a container that has it"
            yield "no_proc", self.name, message, hint
        for pid, followed in self.known.items():
            if followed.no_ring is not None:
                lacks = f"process {pid} has no room for its markers ({followed.no_ring})"
                hint = (
                    "Start it with a higher limit on the size of files (ulimit -f unlimited)."
                    if "ulimit -f" in followed.no_ring
                    else "Make 3 MB of room for each process (in a container: --shm-size), or name a folder that has it"
                    " in TUIMON_RING_DIR, and start again."
                )
                yield "no_ring", "markers", f"{lacks}: steps and phases are not measured", hint
            if "no_hooks" in self._reported or self._table.run_id is None or self._table.facts:
                continue
            reason = without_hooks(followed.facts) if roles[pid] == "trainer" and followed.facts.is_python else None
            if reason is not None and has_torch(pid):  # else it need not train
                lacks = f"process {pid} has no hooks ({reason})"
                hint = (
                    "Start it without that option, or hand TUIMON_RUN and PYTHONPATH on (PYTHONPATH=src:$PYTHONPATH);"
                    " tuimon attach --inject brings hooks into one that runs"
                )
                message = f"{lacks}: steps are not counted, the rest is estimated from stack samples"
                yield "no_hooks", "markers", message, hint
        for pid, facts in self._table.facts.items():
            if facts.tracer is not None:
                tracer = plain(facts.tracer)
                traced = f"process {pid} is being traced by {tracer}, at each call or line of its Python"
                message = f"{traced}: times and verdicts are those of the slowed program"
                hint = f"Start it without {tracer} to see the training at its usual speed"
                yield "tracer", self.name, message, hint

    # ---- what is reported of the processes

    def changed(self, roles: dict[int, ProcessRole], now_s: float) -> Iterable[Record]:
        """Records of processes that are new or have changed."""
        room = 16  # a compilation starts a hundred at the same time
        for pid, followed in self.known.items():
            role = roles[pid]
            known = (followed.facts, self._table.facts.get(pid), role, followed.no_ring)
            if followed.reported is not None and followed.known == known:
                continue
            if followed.reported is None and role == "other":
                # shells start many that live only for a moment
                fleeting = not followed.facts.is_python and followed.reads == 0 and pid != self._table.root_pid
                if room <= 0 or fleeting:
                    continue
                room -= 1
            followed.known = known
            record = self._describe(pid, followed, role, now_s)
            if followed.reported is None or record != _updated(followed.reported, now_s):
                followed.reported = record
                yield record

    def _describe(self, pid: int, followed: FollowedProcess, role: ProcessRole, now_s: float) -> Process:
        facts, ring = followed.facts, self._table.facts.get(pid)
        own, variables = ring or RingFacts(), facts.variables or Variables()
        settings = {*own.of_process.get("debug_settings", ()), *variables.debug_settings}
        reported: dict[str, Any] = {  # Any: fields of the record
            "rank": variables.rank,
            "world_size": variables.world_size,
            **own.of_process,
            "debug_settings": sorted({*settings, "tracer"} if own.tracer else settings),
        }
        return Process(
            t=round(now_s, 3),
            pid=pid,
            ppid=facts.ppid,
            start_unix_s=round(start_unix_s(followed.start_ticks), 2),
            command=list(facts.command),
            role=role,
            markers=ring is not None,
            markers_reason=why_no_markers(facts, role, self._table.run_id is not None, followed.no_ring)
            if ring is None
            else None,
            omp_num_threads=variables.omp_num_threads,
            **reported,
        )

    def _threads(self, roles: dict[int, ProcessRole], now_s: float) -> Iterable[Record]:
        trainers = sum(role == "trainer" for role in roles.values())
        idle = {pid for pid, followed in self.known.items() if roles[pid] == "other" and followed.is_idle(now_s)}
        wait_s = (len(self.known) - trainers - len(idle)) / (_THREADS_PER_S * max(trainers, 1))
        longest_s = longest_intervals(trainers, self.period_s) * self.period_s
        first_worker = next((pid for pid in self.known if roles[pid] == "worker"), None)  # they are all alike
        for pid, followed in self.known.items():
            if followed.reported is None:
                continue
            if followed.window_from_s is None:
                followed.meter.end_window(1.0)
                followed.begin_window()
                continue
            if roles[pid] == "trainer":
                may_wait = pid not in self._table.focus and followed.reads * self.period_s > SETTLING_S
                due_s = longest_s if longest_s > self.period_s and may_wait else 0.0
            else:
                due_s = _IDLE_WAIT_S if pid in idle else min(wait_s, _LONGEST_WAIT_S)
            least_s = due_s - self.period_s / 10  # reads are not to the millisecond
            followed.least_window_s = least_s if roles[pid] == "trainer" else 0.0
            window_s = followed.read_s - followed.window_from_s
            if window_s >= max(least_s, self.period_s * _MIN_PERIOD_PART):
                private, trains = pid == first_worker, roles[pid] == "trainer"
                record = followed.end_window(window_s, now_s, private=private, trains=trains)
                self._table.running[pid] = [row for row in record.threads if row.cpu_ratio]
                yield record


def _updated(record: Process, now_s: float, *, ended: bool = False) -> Process:
    """A Process record again, with a new time."""
    return msgspec.structs.replace(record, t=round(now_s, 3), ended=ended)
