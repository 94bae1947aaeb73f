"""How well stacks are sampled: rate, coverage, what failed, what it costs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tuimon.records import Gil, Stacks
from tuimon.session.windows import Window

#: What the figures look back on.
SPAN_S = 60.0
#: A window that is being taken is not known before it ends: coverage is counted up to the last one that ended, unless
#: that was longer ago than the longest window and what ending it may take.
_LATE_S = 26.0
#: Two windows of 0.6 s at 50 Hz: fewer looks say little.
_ENOUGH_LOOKS = 50
#: More than so many windows (of 1) must tell of cycles: on a busy machine those of a slow loop now and then do not.
_TELLING = 0.5
#: Above the highest pid of Linux: the pthread ids that py-spy knows instead of OS ids on Python <= 3.10.
_OS_IDS = 1 << 22


class SamplerRow(NamedTuple):
    """Sampling of one process over the last 60 s; ``samples``, ``failed`` and ``lost`` since the beginning."""

    pid: int
    rate_hz: float | None  # achieved within its windows
    coverage_ratio: float | None  # wall time within windows / wall time; pauses and lost windows are not covered
    samples: int
    failed: int  # samples that py-spy could not read
    lost: int  # windows of which nothing came back


class Sampling(NamedTuple):
    """Sampling of the run: the training processes, the one in focus first, and what py-spy costs in all."""

    rows: tuple[SamplerRow, ...]
    rate_hz: float | None  # of the process in focus
    coverage_ratio: float | None  # over all training processes
    failed: int
    lost: int
    cpu_ratio: float | None  # 1.0 = one core; None until measured


class _Process:
    """The windows of one process."""

    def __init__(self) -> None:
        self.windows: Window[Stacks] = Window(SPAN_S, limit=256)
        self.first_s: float | None = None
        self.first_cycle_s = math.inf  # when a step was seen first: what was before is set-up
        self.samples = self.failed = self.lost = 0
        self.sampled_s = 0.0

    def add_window(self, record: Stacks) -> None:
        if self.first_s is None:
            self.first_s = record.t - record.window_s
        if record.cycles:
            self.first_cycle_s = min(self.first_cycle_s, record.t)
        self.windows.append(record)
        self.samples += record.samples
        self.failed += record.failed
        self.lost += record.lost
        self.sampled_s += 0.0 if record.lost else record.window_s

    def run_row(self, pid: int) -> SamplerRow:
        """As ``row``, over all that is known."""
        rate_hz = self.samples / self.sampled_s if self.sampled_s > 0 else None
        span_s = self.windows.records[-1].t - self.first_s if self.first_s is not None else 0.0
        coverage = min(self.sampled_s / span_s, 1.0) if span_s > 0 else None
        return SamplerRow(pid, rate_hz, coverage, self.samples, self.failed, self.lost)

    def row(self, pid: int, now_s: float) -> SamplerRow:
        records = [record for record in self.windows.records if not record.lost and record.t > now_s - SPAN_S]
        sampled_s = sum(record.window_s for record in records)
        rate_hz = sum(record.samples for record in records) / sampled_s if sampled_s > 0 else None
        return SamplerRow(pid, rate_hz, self._coverage(now_s), self.samples, self.failed, self.lost)

    def _coverage(self, now_s: float) -> float | None:
        records = self.windows.records
        if not records or self.first_s is None:
            return None
        until_s = records[-1].t if now_s - records[-1].t < _LATE_S else now_s
        from_s = max(self.first_s, until_s - SPAN_S)
        inside_s = sum(_overlap_s(record, from_s, until_s) for record in records if not record.lost)
        return min(inside_s / (until_s - from_s), 1.0) if until_s > from_s else None


def _overlap_s(record: Stacks, from_s: float, until_s: float) -> float:
    return max(min(record.t, until_s) - max(record.t - record.window_s, from_s), 0.0)


class SamplerTable:
    """Folds Stacks records into figures about the sampler itself."""

    def __init__(self) -> None:
        self._processes: dict[int, _Process] = {}
        self._first_s: float | None = None
        self._cost_s = 0.0  # CPU of all windows, of whatever process

    def add_stacks(self, record: Stacks) -> None:
        """Fold a window of a process's stack samples."""
        if self._first_s is None:
            self._first_s = record.t - record.window_s
        self._cost_s += record.cost_cpu_s
        self._processes.setdefault(record.pid, _Process()).add_window(record)

    def forget(self, pid: int) -> None:
        """Another process has this pid now."""
        self._processes.pop(pid, None)

    def sampling(self, trainers: Sequence[int], now_s: float, cpu_ratio: float | None) -> Sampling | None:
        """The figures of these processes; None before the first window."""
        rows = tuple(self._processes[pid].row(pid, now_s) for pid in trainers if pid in self._processes)
        return _together(rows, len(trainers), cpu_ratio) if rows else None

    def run_sampling(self, trainers: Sequence[int], now_s: float) -> Sampling | None:
        """As ``sampling``, over the whole run; its cost is that of all windows, of workers as well."""
        rows = tuple(self._processes[pid].run_row(pid) for pid in trainers if pid in self._processes)
        span_s = now_s - self._first_s if self._first_s is not None else 0.0
        return _together(rows, len(trainers), self._cost_s / span_s if span_s > 0 else None) if rows else None

    def steps_per_second(self, pid: int, now_s: float) -> float | None:
        """Backward passes a second, told by the order of samples; None when they are too far apart to tell."""
        process = self._processes.get(pid)
        since_s = max(now_s - SPAN_S, process.first_cycle_s) if process else now_s
        records = [r for r in process.windows.records if not r.lost and r.t >= since_s] if process else []
        told = [record for record in records if record.cycles is not None]
        cycles = sum(record.cycles or 0 for record in told)
        if len(told) <= _TELLING * len(records) or cycles < 3:
            return None
        # a window of n samples shows what happens in the n - 1 stretches between them
        seen_s = sum(record.window_s * (1 - 1 / max(record.samples, 2)) for record in told)
        return cycles / seen_s if seen_s > 0 else None


def _together(rows: tuple[SamplerRow, ...], trainers: int, cpu_ratio: float | None) -> Sampling:
    """A training process of which no window has ended is not covered."""
    covered = [row.coverage_ratio for row in rows if row.coverage_ratio is not None]
    return Sampling(
        rows=rows,
        rate_hz=rows[0].rate_hz,
        coverage_ratio=sum(covered) / max(trainers, 1) if covered else None,
        failed=sum(row.failed for row in rows),
        lost=sum(row.lost for row in rows),
        cpu_ratio=cpu_ratio,
    )


class GilTable:
    """Folds Gil records: who held the GIL in the last minute."""

    def __init__(self) -> None:
        self._looks: dict[int, deque[Gil]] = {}

    def add_gil(self, record: Gil) -> None:
        """A short window of looks."""
        looks = self._looks.setdefault(record.pid, deque(maxlen=64))
        looks.append(record)
        while looks[0].t < record.t - SPAN_S:
            looks.popleft()

    def forget(self, pid: int) -> None:
        """Another process has this pid now."""
        self._looks.pop(pid, None)

    def ratio(self, pid: int, tid: int) -> float | None:
        """Share of time in which a thread held the GIL; None before there are 50 looks, and where ids do not tell.

        py-spy does not say how often it looked: within about a tenth, less over several windows.
        """
        records = self._looks.get(pid, ())
        looks = sum(record.samples for record in records)
        if looks < _ENOUGH_LOOKS:
            return None
        counts = [thread for record in records for thread in record.threads]
        if tid != pid and any(thread.tid >= _OS_IDS for thread in counts):
            return None
        return min(sum(thread.count for thread in counts if thread.tid == tid) / looks, 1.0)
