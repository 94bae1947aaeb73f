"""Threads of the run, and what role each plays."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from tuimon.node_ids import node_of
from tuimon.records import ThreadCpu, Threads
from tuimon.session.processes.core_waits import CoreWaits, OnCores
from tuimon.session.processes.run_processes import LAST_MOMENT_S, RunProcesses
from tuimon.session.processes.thread_means import ThreadMeans
from tuimon.session.rows import ThreadRow
from tuimon.session.sampling import GilTable
from tuimon.session.stacks.process import ProcessStacks

INTRA_OP = "intra-op"
#: Native and Python thread names -> role, first match wins.
_ROLES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"pt_autograd"), "autograd"),
    (re.compile(r"pt_data_pin|_pin_memory_loop"), "pin-memory"),
    (re.compile(r"QueueFeederThread"), "queue feeder"),
    (re.compile(r"(?i)watchdog|pt_nccl_heartbt|pt_nccl_watchdg"), "watchdog"),
    (re.compile(r"(?i)nccl"), "NCCL"),
    (re.compile(r"(?i)^cuda|cuda-EvtHandlr"), "CUDA driver"),
    (re.compile(r"(?i)gloo"), "gloo"),
    (re.compile(r"(?i)tensorboard|_AsyncWriterThread|EventLogger"), "tensorboard"),
    (re.compile(r"(?i)^(?:wandb|MsgRouterThr|ChkStopThr|NetStatThr|IntMsgThr)"), "wandb"),
    (re.compile(r"(?i)^tqdm|TMonitor"), "progress bar"),
    (re.compile(r"(?i)^(?:gomp|omp|mkl|openblas)"), INTRA_OP),
    (re.compile(r"(?i)^ThreadPoolExecutor"), "thread pool"),
)
#: The name that an interpreter gives its own threads unless torch does.
_PYTHON = re.compile(r"python[\d.]*$")
#: Threads of one intra-op pool share out each loop: each of them uses more CPU than this (1.0 = one core) ...
_POOL_CPU_RATIO = 0.02
#: ... and the busiest no more than so many times as much as the idlest.
_POOL_SPREAD = 1.5


class ThreadTable:
    """Folds Threads records."""

    def __init__(
        self, processes: RunProcesses, cpu_counts: Mapping[int, int], worker_name: Callable[[int], str]
    ) -> None:
        """``cpu_counts``: the cores of each node, once they are known; ``worker_name``: of a DataLoader worker."""
        self._worker_name = worker_name
        self._cpu_counts = cpu_counts
        self._processes = processes
        self._latest: dict[int, Threads] = {}
        self._waits: defaultdict[int, CoreWaits] = defaultdict(CoreWaits)
        self._means: defaultdict[int, ThreadMeans] = defaultdict(ThreadMeans)  # since the first step
        self._begin_s = math.inf

    def add_threads(self, record: Threads) -> None:
        """Fold the threads of a process over a window."""
        self._latest[record.pid] = record
        process = self._processes.known.get(record.pid)
        if process is None or not process.serves:  # workers make no steps: their latest window is enough
            self._waits[record.pid].add_window(record)
        if record.t - record.window_s >= self._begin_s:
            self._means[record.pid].add_window(record)

    def begin_steps(self, t: float) -> None:
        """The first training of the run has begun to make steps: means are of windows from now on."""
        self._begin_s = min(self._begin_s, t)

    def means_of(self, pid: int) -> ThreadMeans | None:
        """Means of a process since the first step."""
        return self._means.get(pid)

    def means_of_all(self, pids: Iterable[int], since_s: float, now_s: float) -> list[Threads]:
        """Means over the steps of every process that lived in them; of one that came late or went early, less.

        Workers that lived one after the other, epoch by epoch, are one: the last of them.
        """
        known = {pid: self._means[pid] for pid in pids if pid in self._means}
        longest_s = max((means.window_s for means in known.values()), default=0.0)
        found = []
        for succession in self._processes.successions(known) if longest_s > 0 else ():
            if len(succession) == 1:
                means = known[succession[0]]
                found.append(means.mean(means.window_s / longest_s))
            else:
                lived_s = sum(self._processes.lived_s(pid, since_s, now_s) for pid in succession)
                means = ThreadMeans.of_succession([known[pid] for pid in succession])
                found.append(means.mean(min(1.0, lived_s / longest_s)))
        return [threads for threads in found if threads is not None]

    def forget(self, pid: int) -> None:
        """Drop the threads of a process that ended long ago."""
        self._latest.pop(pid, None)
        self._waits.pop(pid, None)
        self._means.pop(pid, None)

    def of(self, pid: int) -> Threads | None:
        """The latest window of a process."""
        return self._latest.get(pid)

    def on_cores(self, pid: int, begin_s: float, end_s: float) -> OnCores:
        """How much a process waited for a core in a span of time, and how many cores it used."""
        waits = self._waits.get(pid)
        return waits.over(begin_s, end_s) if waits is not None else OnCores()

    def workers_waited_ratio(self, trainer: int) -> float:
        """Share (0..1) of the time its DataLoader workers wanted to run in which they waited for a core."""
        cpu = delay = 0.0
        for worker in self._processes.workers(trainer):
            latest = self._latest.get(worker.pid)
            for thread in latest.threads if latest else ():
                if thread.cpu_ratio is not None and thread.delay_ratio is not None:
                    cpu += thread.cpu_ratio * thread.count
                    delay += thread.delay_ratio * thread.count
        return delay / (cpu + delay) if delay else 0.0

    def shown(self, order: list[int], node: int = 0) -> list[int]:
        """The processes of a node, those in ``order`` first; of an ended run, those of its last moment."""
        shown = self._shown()
        return [pid for pid in dict.fromkeys((*order, *self._latest)) if pid in shown and node_of(pid) == node]

    def _shown(self) -> set[int]:
        """The live processes, or, when none is left, those that ended last."""
        known = self._processes.known
        live = {pid for pid in self._latest if not self._processes.has_ended(pid)}
        if live or not known:
            return live
        last_s = max(process.t for process in known.values())
        return {pid for pid in self._latest if known[pid].t >= last_s - LAST_MOMENT_S}

    def rows_of(
        self, pid: int, sampled: ProcessStacks | None, gil: GilTable, figures: Threads | None = None
    ) -> Iterator[ThreadRow]:
        """The threads of one process, of its latest window or of other figures; its intra-op pool is one row."""
        latest = figures or self._latest.get(pid)
        if latest is None:
            return
        process = self._processes.known.get(pid)
        trains = process is not None and process.torch is not None
        pool = intra_op_pool(latest, sampled, self._cpu_counts.get(node_of(pid))) if trains else frozenset()
        pool_listed = False
        for thread in latest.threads:
            if thread.tid not in pool:
                yield self._row(pid, thread, sampled, gil)
            elif not pool_listed:
                pool_listed = True
                folded = _fold_threads([member for member in latest.threads if member.tid in pool])
                yield self._row(pid, folded, sampled, gil, INTRA_OP)

    def _row(
        self, pid: int, thread: ThreadCpu, sampled: ProcessStacks | None, gil: GilTable, role: str | None = None
    ) -> ThreadRow:
        process = self._processes.known.get(pid)
        python_name = sampled.threads.name_of(thread.tid) if sampled else None
        return ThreadRow(
            pid=pid,
            tid=thread.tid,
            role=role or self._role(pid, thread, python_name, trains=sampled is not None and thread.tid == sampled.tid),
            name=python_name or thread.name,
            cpu_ratio=thread.cpu_ratio,
            ended=self._processes.has_ended(pid),
            state=thread.state,
            delay_ratio=thread.delay_ratio,
            place=sampled.threads.place_of(thread.tid) if sampled and thread.count == 1 else None,
            count=thread.count,
            gil_ratio=gil.ratio(pid, thread.tid) if thread.count == 1 else None,
            rank=process.rank if process is not None and (process.world_size or 2) > 1 else None,
        )

    def _role(self, pid: int, thread: ThreadCpu, python_name: str | None, *, trains: bool) -> str:
        process = self._processes.known.get(pid)
        kind = process.role if process else "other"
        if thread.tid == pid:
            if kind == "worker":
                return self._worker_name(pid)
            if kind == "trainer":
                return "main"
            return process.command[0].rpartition("/")[2] if process and process.command else "other"
        if trains:
            return "training"
        for pattern, role in _ROLES:
            if pattern.search(thread.name) or (python_name and pattern.search(python_name)):
                return role
        return "native" if python_name is None else "thread"


def intra_op_pool(latest: Threads, sampled: ProcessStacks | None, cores: int | None) -> frozenset[int]:
    """Ids of the OpenMP or MKL threads of a training process; empty where that is not certain.

    They carry the name that the main thread had when it created them. Other native threads may too, so there must be
    one fewer of them than cores (or than half of these: hyper-threads), or all must have been equally busy. Which
    threads run Python is unknown before the first samples.
    """
    if sampled is None or sampled.latest_s is None:
        return frozenset()
    main = next((thread.name for thread in latest.threads if thread.tid == latest.pid), "")
    native = [
        thread
        for thread in latest.threads
        if thread.tid not in (latest.pid, sampled.tid)
        and sampled.threads.name_of(thread.tid) is None
        and (thread.name in (main, "pt_main_thread") or _PYTHON.match(thread.name))
    ]
    total = sum(thread.count for thread in native)
    by_number = cores is not None and total > 0 and total in (cores - 1, cores // 2 - 1)
    return frozenset(thread.tid for thread in native) if by_number or _equally_busy(native) else frozenset()


def _equally_busy(threads: list[ThreadCpu]) -> bool:
    """True if several threads used about the same CPU time, as those that share out each loop do."""
    busy = [thread.cpu_ratio for thread in threads if thread.cpu_ratio is not None and thread.count == 1]
    return len(busy) == len(threads) >= 2 and min(busy) > _POOL_CPU_RATIO and max(busy) < _POOL_SPREAD * min(busy)


def _fold_threads(threads: list[ThreadCpu]) -> ThreadCpu:
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
