"""Threads of the run: their use of cores, their waits over any span, and their roles."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, field, structs

from tuimon.native_code import NativeUse
from tuimon.records import Place, Process, ThreadCpu, ThreadFaults, Threads
from tuimon.session.machines import GROWTH_S, Reading, readings_of
from tuimon.session.series import FEW_ROWS, LATEST, WHOLE_RUN, KeyNumbers, Series, Span, Stretch, latest
from tuimon.session.stacks.process import ProcessStacks
from tuimon.session.steps import OnCores
from tuimon.threshold import LARGER, MOST, TINY, UNUSUAL


class ThreadRow(Struct, frozen=True):
    """One OS thread, or several of one kind (``count`` > 1)."""

    pid: int
    tid: int
    #: for the user: "main", "training" (off the main thread), "worker 0", "pin-memory", "autograd", "intra-op"
    role: str
    name: str
    cpu_ratio: float | None
    state: str
    delay_ratio: float | None
    place: Place | None  # innermost user line, from the latest samples
    count: int = 1
    ended: bool = False
    gil_ratio: float | None = None  # share of time it held the GIL, within a tenth; None with too few samples
    rank: int | None = None  # of its process, in a training of several
    native: NativeUse = field(default_factory=NativeUse)  # the code it runs, in Python and below
    faults: ThreadFaults | None = None  # its page faults, if they were read

    @property
    def kind(self) -> str:
        """The role without its number: ``worker``."""
        return role_kind(self.role)


def thread_count(record: Threads) -> int:
    return sum(row.count for row in record.threads) + record.folded


def role_kind(role: str) -> str:
    """A role without its number and purpose: ``eval worker 2`` is a ``worker``."""
    kind = role.rstrip("0123456789").rstrip()
    return "worker" if kind != role and kind.endswith("worker") else kind


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
#: Most threads of a process that are summed up, and most that have ended, the latest.
_PLACES, _ENDED = 1024, 16
#: The columns whose latest reading counts.
_LATEST = dict.fromkeys(("held_bytes", "private_bytes", "open_files", "number", "steps"), latest)
#: The key of a process's writing, among its figures.
_WRITES = -1
#: Bytes that a process writes in a window from which the window is part of a burst: our choice; logs write less.
_MUCH_BYTES = 1 << 20


class _Use(NamedTuple):
    """A process in windows that follow one another, in seconds; a row of a ``Series``."""

    begin_s: float
    end_s: float
    seconds: float
    cpu_s: float
    cpu_of_s: float  # in which CPU was measured
    waited_s: float  # for a core, of the thread that waited longest: the training one or one that computes
    waited_of_s: float
    childrens_s: float  # CPU of its children that no record of their own holds
    training_cpu_s: float  # of the thread that trains
    training_cpu_of_s: float
    training_delay_s: float
    training_delay_of_s: float
    stopped_s: float  # windows at whose end the thread that trains was stopped
    disk_s: float  # windows at whose end the main thread waited for the disk
    held_bytes: float  # memory of its own, the latest; NaN: not read
    private_bytes: float  # memory that it has written and shares with no other process; NaN: not read
    open_files: float
    number: float  # of its threads
    steps: float  # that it has made

    def ratio(self, name: str) -> float | None:
        """An amount as a share of the time in which it was measured; None if it was not measured."""
        whole_s: float = getattr(self, f"{name}_of_s")
        return getattr(self, f"{name}_s") / whole_s if whole_s else None


#: The resources that a leaking process holds more and more of.
Held = Literal["held_bytes", "private_bytes", "open_files", "number"]


class TrainingThread(Struct, frozen=True, gc=False):
    """Means of the training thread; None if the kernel does not report a figure."""

    cpu_ratio: float | None = None
    delay_ratio: float | None = None
    stopped_ratio: float = 0.0  # share of the windows at whose end it was stopped
    disk_ratio: float | None = None  # ... at whose end the main thread waited for the disk

    @property
    def busy_ratio(self) -> float | None:
        """Share of time in which it ran or wanted to."""
        if self.cpu_ratio is None or self.delay_ratio is None:
            return None
        return min(1.0, self.cpu_ratio + self.delay_ratio)


class ProcessThreads:
    """The threads of one process.

    Once a thread has ended, the next one of its name takes its place, so a thread that each epoch starts anew counts as
    one.
    """

    def __init__(self, pid: int) -> None:
        self.latest: Threads | None = None
        self.tid = pid  # of the thread that trains
        self.ended: tuple[tuple[float, int], ...] = ()  # the latest threads, and when each one's last window ended
        self.use = Series(_Use, FEW_ROWS, _LATEST)
        self.written_to = ""  # the file system that much was written to last, as far as known: "nfs4"
        self._in_burst: bool | None = None  # None: nothing was written in steps so far
        self._windows = Series(Stretch, 4)
        # By place: CPU, the time in which it was measured, delay, the time in which it was measured (us), minor and
        # major page faults. Under _WRITES: windows of its steps in which writing was read, those of them in bursts,
        # bursts, and the bytes of these.
        self._figures = KeyNumbers[int](6, _PLACES + 1)
        self._places: list[ThreadCpu] = []  # the latest of each place

    def add_window(self, record: Threads, tid: int, held_bytes: int | None = None, steps: int = 0) -> None:
        """Add a window; ``tid``: the thread that trains; ``held_bytes``: what it holds; ``steps``: made so far."""
        # 0 of memory: it exits; files are not read each time
        before = self.latest or record
        held, files = record.rss_bytes or before.rss_bytes, record.open_files or before.open_files
        is_whole = (held, files) == (record.rss_bytes, record.open_files)
        self.latest = record if is_whole else structs.replace(record, rss_bytes=held, open_files=files)
        self.tid = tid
        self.ended = (*self.ended, *((record.t, each) for each in record.ended))[-_ENDED:]
        self._add_use(record, held_bytes, steps)
        places = {row.tid: place for place, row in enumerate(self._places)}
        live = {row.tid: places[row.tid] for row in record.threads if row.tid in places}
        found, whole_us = [], round(1e6 * record.window_s)
        faults = {each.tid: (each.minor_hz, each.major_hz) for each in record.faults or ()}
        for row in record.threads:
            place = live.get(row.tid)
            if place is None:
                free = (n for n, one in enumerate(self._places) if one.name == row.name and n not in live.values())
                place = next(free, len(self._places))
                if place >= _PLACES:
                    continue
                live[row.tid] = place
            self._places[place : place + 1] = [row]
            cpu, delay = row.cpu_ratio, row.delay_ratio
            cpu_us = (0, 0) if cpu is None else (round(cpu * whole_us), whole_us)
            delay_us = (0, 0) if delay is None else (round(delay * whole_us), whole_us)
            faulted = (round(hz * record.window_s) for hz in faults.get(row.tid, ()))
            found.append((place, *cpu_us, *delay_us, *faulted))
        if record.written_bytes is not None and steps:
            if self._in_burst is not None:  # part of the first was written before
                much = record.written_bytes >= _MUCH_BYTES
                begins = much and not self._in_burst
                found.append((_WRITES, 1, int(much), int(begins), record.written_bytes if much else 0))
                self._in_burst, self.written_to = much, record.written_to or self.written_to
            self._in_burst = self._in_burst or False
        self._windows.append(Stretch(record.t - record.window_s, record.t), self._figures.counts(found))

    def _add_use(self, record: Threads, held_bytes: int | None, steps: int) -> None:
        window_s, rows = record.window_s, {row.tid: row for row in record.threads}
        main, training = rows.get(record.pid), rows.get(self.tid)
        cpu, delay = (training.cpu_ratio, training.delay_ratio) if training is not None else (None, None)
        waits = [
            row.delay_ratio
            for row in record.threads
            if row.cpu_ratio is not None
            and row.delay_ratio is not None
            and (row is main or row.cpu_ratio + row.delay_ratio >= UNUSUAL)  # helpers: a few percent
        ]
        use = _Use(
            record.t - window_s,
            record.t,
            window_s,
            *_measured(record.cpu_ratio, window_s),
            *_measured(max(waits, default=None), window_s),
            record.ended_cpu_s or 0.0,
            *_measured(cpu, window_s),
            *_measured(delay, window_s),
            stopped_s=window_s if training is not None and training.state == "stopped" else 0.0,
            disk_s=window_s if main is not None and main.state == "disk" else 0.0,
            held_bytes=math.nan if held_bytes is None else held_bytes,
            private_bytes=math.nan if record.private_bytes is None else record.private_bytes,
            open_files=record.open_files[0] if record.open_files is not None else math.nan,
            number=thread_count(record),
            steps=steps,
        )
        self.use.append(use)

    def keep_apart(self, t: float) -> None:
        """Note that steps begin at ``t``: a span may begin there."""
        self.use.keep_apart(t)
        self._windows.keep_apart(t)

    def over(self, span: Span, presence: float = 1.0) -> Threads | None:
        """The means over a span, live threads first; None if no window lies in the span.

        ``presence``: the share of the span for which the process, or others like it, lived.
        """
        sums, latest = self.use.over(span), self.latest
        if span == LATEST or sums is None or latest is None:
            return latest if span == LATEST else None
        figures, rows, faults = self._figures.figures(self._windows.counts(span)), [], []
        live = {row.tid: at for at, row in enumerate(latest.threads)}
        for place, row in sorted(enumerate(self._places), key=lambda each: live.get(each[1].tid, len(live))):
            cpu, cpu_of, delay, delay_of, minor, major = figures.get(place, (0,) * 6)
            share = min(1.0, cpu_of / 1e6 / sums.cpu_of_s) if sums.cpu_of_s else 0.0
            share = 1.0 if row.tid in live else share
            if share >= MOST:  # of threads that have ended: those that worked during most of the steps
                ratios = _ratio(cpu, cpu_of, presence * share), _ratio(delay, delay_of, presence * share)
                rows.append(structs.replace(row, cpu_ratio=ratios[0], delay_ratio=ratios[1]))
                hz = 1e6 * presence * share / (cpu_of or math.inf)
                faults.append(ThreadFaults(row.tid, hz * minor, hz * major))
        return structs.replace(
            latest,
            window_s=sums.seconds,
            cpu_ratio=presence * cpu_ratio if (cpu_ratio := sums.ratio("cpu")) is not None else None,
            threads=rows,
            faults=faults if latest.faults is not None else None,
            ended_cpu_s=presence * sums.childrens_s,
        )

    def training(self, span: Span) -> TrainingThread:
        sums = self.use.over(span)
        if sums is None:
            return TrainingThread()
        at_ends = sums.stopped_s / sums.seconds, sums.disk_s / sums.seconds
        return TrainingThread(sums.ratio("training_cpu"), sums.ratio("training_delay"), *at_ends)

    @property
    def is_stopped(self) -> bool:
        """True if the thread that trains was stopped at the end of the latest window."""
        rows = self.latest.threads if self.latest is not None else ()
        return any(row.tid == self.tid and row.state == "stopped" for row in rows)

    def held(self, what: Held = "held_bytes") -> list[Reading]:
        """The amount that it held in the last two minutes, about one reading a second."""
        columns = self.use.columns(Span(last_s=GROWTH_S), ("end_s", what, "steps"))
        return readings_of(columns["end_s"], columns[what], columns["steps"])

    def written(self, span: Span = WHOLE_RUN) -> tuple[int | None, int]:
        """Bursts of writing since the first steps, or None if they are too close to be separated; and their bytes."""
        figures = self._figures.figures(self._windows.counts(span)).get(_WRITES, (0,) * 6)
        windows, of_bursts, bursts, burst_bytes, *_ = figures
        return bursts if 2 * of_bursts <= windows else None, burst_bytes

    def on_cores(self, begin_s: float, end_s: float, workers: Iterable[Threads | None] = ()) -> OnCores:
        """How much it and its workers used cores, and waited for them, in a window of its steps.

        Windows of threads and of steps begin at different moments. Example: threads waited for 0.2 of the window from
        10 s to 11 s and for 0.6 of the window from 11 s to 12 s, so steps from 10.5 s to 11.5 s waited for 0.4. Without
        a window of threads in that time, the latest one counts.
        """
        near = [sums for sums in (self.use.part(begin_s, end_s), *self.use.rows(last=1)) if sums is not None]
        waited, cpu, ran, wanted = (
            next((ratio for sums in near if (ratio := sums.ratio(name)) is not None), None)
            for name in ("waited", "cpu", "training_cpu", "training_delay")
        )
        rows = [row for worker in workers if worker is not None for row in worker.threads]
        known = [row for row in rows if row.cpu_ratio is not None and row.delay_ratio is not None]
        delay = sum((row.delay_ratio or 0.0) * row.count for row in known)
        both = sum(row.wanted_ratio * row.count for row in known)
        busy = 0.0 if ran is None or wanted is None else min(1.0, ran + wanted)
        return OnCores(waited or 0.0, cpu or 0.0, delay / both if delay else 0.0, busy)


def _measured(ratio: float | None, window_s: float) -> tuple[float, float]:
    """The time of a window that a ratio stands for, and the time in which it was measured."""
    return (0.0, 0.0) if ratio is None else (ratio * window_s, window_s)


def _ratio(part: float, whole: float, presence: float = 1.0) -> float | None:
    return presence * part / whole if whole else None


def core_seconds(each: Sequence[ProcessThreads], begin_s: float, end_s: float) -> tuple[float, float]:
    """The CPU time of processes in a stretch of time, and the moment up to which it is known, both in s.

    A process whose CPU is not known yet has begun just now: it used no more than a core, as one thread loads its code.
    """
    until_s = min(end_s, max((own.latest.t for own in each if own.latest is not None), default=0.0))
    parts = [sums for own in each if (sums := own.use.part(begin_s, until_s)) is not None]
    return sum(sums.cpu_s + sums.childrens_s + sums.seconds - sums.cpu_of_s for sums in parts), until_s


def thread_rows(
    figures: Threads,
    process: Process | None,
    sampled: ProcessStacks,
    native: Mapping[int, NativeUse],
    gil_ratio: Callable[[int], float | None],
    cores: int | None,
    name_of: Callable[[int], str],
) -> list[ThreadRow]:
    """The threads of one process; its intra-op pool is one row. ``cores``: of its node; ``name_of`` a worker."""
    pid, trains = figures.pid, process is not None and process.torch is not None
    pool = intra_op_pool(figures, sampled, cores) if trains else frozenset()
    faults = {each.tid: each for each in figures.faults} if figures.faults is not None else None
    rows: dict[int | None, list[ThreadRow]] = {}
    for thread in figures.threads:
        tid, name, is_one = thread.tid, sampled.threads.name_of(thread.tid), thread.count == 1
        row = ThreadRow(
            pid=pid,
            tid=tid,
            role=INTRA_OP if tid in pool else _role(pid, process, thread, name, sampled.tid, name_of),
            name=name or thread.name,
            cpu_ratio=thread.cpu_ratio,
            ended=process is not None and process.ended,
            state=thread.state,
            delay_ratio=thread.delay_ratio,
            place=sampled.threads.place_of(tid) if is_one else None,
            count=thread.count,
            gil_ratio=gil_ratio(tid) if is_one else None,
            native=native.get(tid, NativeUse()),
            faults=faults.get(tid, ThreadFaults(tid, 0.0, 0.0)) if faults is not None else None,
            rank=process.rank if process is not None and (process.world_size or 2) > 1 else None,
        )
        rows.setdefault(None if tid in pool else tid, []).append(row)
    return list(map(merged_row, rows.values()))


def merged_row(rows: Sequence[ThreadRow], role: str = "") -> ThreadRow:
    """Threads of one kind as one row, with its own role: the sum of CPU, the longest wait, running if any runs."""
    if len(rows) == 1:
        return rows[0]
    cpu = [row.cpu_ratio for row in rows if row.cpu_ratio is not None]
    known = [row.faults for row in rows if row.faults is not None]
    faults = ThreadFaults(rows[0].tid, sum(each.minor_hz for each in known), sum(each.major_hz for each in known))
    return structs.replace(
        rows[0],
        role=role or rows[0].role,
        cpu_ratio=sum(cpu) if cpu else None,
        delay_ratio=max((row.delay_ratio for row in rows if row.delay_ratio is not None), default=None),
        state="running" if any(row.state == "running" for row in rows) else rows[0].state,
        place=None,
        count=sum(row.count for row in rows),
        gil_ratio=None,
        native=NativeUse.joined(row.native for row in rows),
        faults=faults if known else None,
    )


def _role(
    pid: int,
    process: Process | None,
    thread: ThreadCpu,
    python_name: str | None,
    training_tid: int,
    name_of: Callable[[int], str],
) -> str:
    kind = process.role if process else "other"
    if thread.tid == pid:
        if kind == "worker":
            return name_of(pid)
        if kind == "trainer":
            return "main"
        return process.command[0].rpartition("/")[2] if process and process.command else "other"
    if thread.tid == training_tid:
        return "training"
    for pattern, role in _ROLES:
        if pattern.search(thread.name) or (python_name and pattern.search(python_name)):
            return role
    return "native" if python_name is None else "thread"


def intra_op_pool(latest: Threads, sampled: ProcessStacks, cores: int | None) -> frozenset[int]:
    """Ids of the OpenMP or MKL threads of a training process; empty if that is not certain.

    They carry the name that the main thread had when it created them. Other native threads may carry it too. So their
    number must be one less than that of the cores (or of half the cores: hyper-threads), or all must have been equally
    busy. Before the first samples it is unknown which threads run Python.
    """
    if sampled.latest_s is None:
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
    busy = [thread.cpu_ratio for thread in native if thread.cpu_ratio is not None and thread.count == 1]
    alike = len(busy) == len(native) >= 2 and min(busy) > TINY and max(busy) < LARGER * min(busy)
    return frozenset(thread.tid for thread in native) if by_number or alike else frozenset()
