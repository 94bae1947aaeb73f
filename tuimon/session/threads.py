"""Processes and threads of the run, and what role each plays."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuimon.records import Process, ThreadCpu, Threads
from tuimon.session.pools import intra_op_pool, together
from tuimon.session.rows import ThreadRow
from tuimon.session.samples.window import HotSpots
from tuimon.session.sampling import GilTable

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
#: How many processes that have ended are remembered, and which of them belong to the picture of the run's last moment.
_ENDED_LIMIT = 64
_LAST_MOMENT_S = 10.0


class ThreadTable:
    """Folds Process and Threads records."""

    def __init__(self) -> None:
        self.processes: dict[int, Process] = {}
        self._threads: dict[int, Threads] = {}
        self.cpu_count: int | None = None
        self._worker_numbers: dict[int, int] = {}  # pid -> number among its parent's workers
        self._workers_of: dict[int, int] = {}  # parent -> workers seen so far

    def add_process(self, record: Process) -> None:
        """A process appeared, changed or ended."""
        self.processes.pop(record.pid, None)  # the newest last
        self.processes[record.pid] = record
        if record.role == "worker" and record.pid not in self._worker_numbers:
            number = self._workers_of.get(record.ppid, 0)
            self._worker_numbers[record.pid] = number
            self._workers_of[record.ppid] = number + 1
        if record.ended:
            self._forget()

    def add_threads(self, record: Threads) -> None:
        """The threads of a process over a window."""
        self._threads[record.pid] = record

    def of(self, pid: int) -> Threads | None:
        """The latest window of a process."""
        return self._threads.get(pid)

    def workers(self, trainer: int) -> list[Process]:
        """Live DataLoader workers of a trainer; of one that has ended, those it had at the end."""
        own = [p for p in self.processes.values() if p.ppid == trainer and p.role == "worker"]
        parent = self.processes.get(trainer)
        if parent is not None and parent.ended:
            return [p for p in own if p.t >= parent.t - _LAST_MOMENT_S]
        return [p for p in own if not p.ended]

    def had_workers(self, trainer: int) -> bool:
        """Whether a process ever had DataLoader workers."""
        return trainer in self._workers_of

    def rows(self, order: list[int], hotspots: dict[int, HotSpots], gil: GilTable) -> Iterator[ThreadRow]:
        """All threads, processes in ``order`` first; when the run is over, as they were in its last moment."""
        shown = self._shown()
        rest = [pid for pid in self._threads if pid not in order]
        for pid in (*order, *rest):
            if pid in shown:
                yield from self.rows_of(pid, hotspots.get(pid), gil)

    def _shown(self) -> set[int]:
        """Processes of the picture: the living, or, when none lives, those that ended last."""
        known = self.processes
        living = {pid for pid in self._threads if pid not in known or not known[pid].ended}
        if living or not known:
            return living
        last_s = max(process.t for process in known.values())
        return {pid for pid in self._threads if known[pid].t >= last_s - _LAST_MOMENT_S}

    def rows_of(self, pid: int, hotspots: HotSpots | None, gil: GilTable) -> Iterator[ThreadRow]:
        """The threads of one process; its intra-op pool is one row."""
        latest = self._threads.get(pid)
        if latest is None:
            return
        process = self.processes.get(pid)
        trains = process is not None and process.torch is not None
        pool = intra_op_pool(latest, hotspots, self.cpu_count) if trains else frozenset()
        folded = False
        for thread in latest.threads:
            if thread.tid not in pool:
                yield self._row(pid, thread, hotspots, gil)
            elif not folded:
                folded = True
                team = together([member for member in latest.threads if member.tid in pool])
                yield self._row(pid, team, hotspots, gil, INTRA_OP)

    def _row(
        self, pid: int, thread: ThreadCpu, hotspots: HotSpots | None, gil: GilTable, role: str | None = None
    ) -> ThreadRow:
        python_name = hotspots.thread_name(thread.tid) if hotspots else None
        return ThreadRow(
            pid=pid,
            tid=thread.tid,
            role=role or self._role(pid, thread, python_name),
            name=python_name or thread.name,
            cpu_ratio=thread.cpu_ratio,
            ended=pid in self.processes and self.processes[pid].ended,
            state=thread.state,
            delay_ratio=thread.delay_ratio,
            place=hotspots.place(thread.tid) if hotspots and thread.count == 1 else None,
            count=thread.count,
            gil_ratio=gil.ratio(pid, thread.tid) if thread.count == 1 else None,
        )

    def _role(self, pid: int, thread: ThreadCpu, python_name: str | None) -> str:
        process = self.processes.get(pid)
        kind = process.role if process else "other"
        if thread.tid == pid:
            if kind == "worker":
                return f"worker {self._worker_numbers.get(pid, 0)}"
            if kind == "trainer":
                return "main"
            return _program(process) if process else "other"
        for pattern, role in _ROLES:
            if pattern.search(thread.name) or (python_name and pattern.search(python_name)):
                return role
        return "native" if python_name is None else "thread"

    def _forget(self) -> None:
        ended = [pid for pid, process in self.processes.items() if process.ended]
        for pid in ended[:-_ENDED_LIMIT]:
            del self.processes[pid]
            self._threads.pop(pid, None)


def _program(process: Process) -> str:
    return process.command[0].rpartition("/")[2] if process.command else "other"
