"""Decides which process is sampled next, how fast and how long, within a CPU budget, by the cost of py-spy so far.

The first rank is sampled all the time, other ranks and DataLoader workers as the budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.proc import procfs
from tuimon.proc.processes import is_python
from tuimon.sources.process_table import ProcessTable

#: The highest rate of any window, and the rate of a process's first windows.
FASTEST_HZ = 100
START_HZ = 20
#: Length of a window in seconds, and the rate that the budget has to allow for it: each window costs a start of py-spy,
#: but after a long one what the screen shows is old. The shortest that can be afforded is taken.
WINDOWS = ((2.0, 20.0), (3.0, 20.0), (4.0, 10.0), (6.0, 8.0), (8.0, 5.0), (12.0, 3.0), (20.0, 1.0))
#: Length and rate of the windows of a process that cannot be sampled all the time, and the longest pause between two.
_PAUSED = ((20.0, 2.0), (8.0, 1.0))
_LONGEST_PAUSE_S = 30.0
#: Share of the budget that plans use: windows end late, and cost more when the machine is loaded.
_AIM = 0.9

#: CPU seconds of a sample and of a start, before any is measured; both grow with the number of threads. Measured on a
#: 2-core machine with py-spy 0.4: a sample of a torch training takes 0.35 ms; with 126 native threads more 1.9 ms, with
#: 20 more that run Python 1.3 ms, with 60 of them 4.6 ms. A start takes 15 to 35 ms, of 60 Python threads 60 ms.
_SAMPLE_S = 0.00025
_THREAD_SAMPLE_S = 0.00006
_START_S = 0.02
_THREAD_START_S = 0.0004
#: Least weight of the latest window in what they cost; they cost at least this part of what is usual, even if nothing
#: could be measured, as when the kernel reaps children by itself.
_NEWEST_WEIGHT, _MIN_FACTOR = 0.2, 0.05


class WindowPlan(NamedTuple):
    """Rate in whole Hz (py-spy takes no others) and length in seconds of a window."""

    rate_hz: int
    window_s: float
    continuous: bool  # the budget allows the next one to follow immediately


class Shares(NamedTuple):
    """Parts of the budget, as ratios of one core."""

    focus: float  # the first training process
    others: float  # the other training processes together
    workers: float  # DataLoader workers together
    gil: float  # who holds the GIL


def split_budget(budget_ratio: float, trainers: int, workers: int) -> Shares:
    """The parts of the budget for a number of processes: the first rank, which people watch, is always sampled well.

    A budget of 0.03 gives one trainer alone 0.0276; with 8 workers, 0.0193 for the trainer and 0.0083 for all workers.
    """
    left = 0.92 * budget_ratio
    gil = budget_ratio - left
    of_workers = left * (0.3 if trainers else 1.0) if workers else 0.0
    left -= of_workers
    focus = left if trainers == 1 else 0.4 * left if trainers else 0.0
    return Shares(focus, left - focus if trainers > 1 else 0.0, of_workers, gil)


class CostModel:
    """Predicts the CPU cost of a process's windows: the usual cost for its number of threads, times a measured factor.

    One factor applies to start and samples alike: a process's windows mostly have one length, so that their costs do
    not show the two apart.
    """

    def __init__(self, threads: int = 4) -> None:
        """``threads``: of the process."""
        threads = min(max(threads, 1), 256)  # more make it no costlier
        self._start_s = _START_S + threads * _THREAD_START_S
        self._sample_s = _SAMPLE_S + threads * _THREAD_SAMPLE_S
        self._factor = 1.0
        self._windows = 0

    def add_window(self, samples: int, cpu_s: float) -> None:
        self._windows += 1
        factor = max(cpu_s / (self._start_s + samples * self._sample_s), _MIN_FACTOR)
        self._factor += max(1 / self._windows, _NEWEST_WEIGHT) * (factor - self._factor)

    def window_cpu_s(self, rate_hz: float, window_s: float) -> float:
        """CPU seconds that such a window is expected to cost."""
        return self._factor * (self._start_s + rate_hz * window_s * self._sample_s)

    def affordable_hz(self, cpu_s: float, window_s: float) -> float:
        """The rate at which a window costs this much; negative if its start alone costs more."""
        return (cpu_s / self._factor - self._start_s) / (window_s * self._sample_s)


def plan_window(
    cost: CostModel, share_ratio: float, limit_hz: float = FASTEST_HZ, longest_s: float = math.inf
) -> WindowPlan:
    """The best window that a share of the budget allows, none longer than ``longest_s``."""
    allowed = [(window_s, hz) for window_s, hz in WINDOWS if window_s <= longest_s]
    for window_s, least_hz in allowed:
        hz = cost.affordable_hz(_AIM * share_ratio * window_s, window_s)
        if hz >= min(least_hz if window_s < allowed[-1][0] else 1.0, max(limit_hz, 1.0)):
            return WindowPlan(_whole_hz(hz, limit_hz), window_s, True)
    for window_s, paused_hz in _PAUSED:
        rate_hz = _whole_hz(paused_hz, limit_hz)
        if window_s <= longest_s and cost.window_cpu_s(rate_hz, window_s) <= share_ratio * _LONGEST_PAUSE_S:
            return WindowPlan(rate_hz, window_s, False)
    return WindowPlan(1, _PAUSED[-1][0], False)


def _whole_hz(rate_hz: float, limit_hz: float) -> int:
    return max(1, int(min(rate_hz, limit_hz, FASTEST_HZ)))


class CpuBudget:
    """A token bucket of CPU seconds: it fills at ``ratio``, holds 8 seconds' worth, and may go into debt.

    A window's expected cost is spent when it begins, the difference to its real cost when it ends: however many
    processes wait, no more windows begin than can be paid for.
    """

    _HOLDS_S = 8.0

    def __init__(self, ratio: float, now_s: float) -> None:
        self.ratio = ratio
        self._balance_s = ratio * self._HOLDS_S
        self._at_s = now_s

    def fill_at(self, ratio: float) -> None:
        """Fill at another ratio from now on; content and debt are scaled so that they last as long as before."""
        if self.ratio > 0 and ratio < self.ratio:
            self._balance_s *= ratio / self.ratio
        self.ratio = ratio

    def spend(self, cpu_s: float) -> None:
        """Take CPU seconds out of the bucket; a negative number puts unused ones back."""
        self._balance_s -= cpu_s

    def allows_window(self, now_s: float, continuous: bool = False) -> bool:
        """True if another window may begin.

        A continuous plan keeps to its share by itself. So its windows may begin while the debt is at most one full
        bucket: otherwise each window that costs a little more than expected would leave a gap.
        """
        holds_s = self.ratio * self._HOLDS_S
        self._balance_s = min(self._balance_s + (now_s - self._at_s) * self.ratio, holds_s)
        self._at_s = now_s
        return self._balance_s > (-holds_s if continuous else 0.0)


#: The first windows of a process, and of one that begins to train, are short: the screen fills early.
FIRST_WINDOWS_S = (0.6, 2.0)
#: How many DataLoader workers are sampled at a time, at most.
_WORKERS_AT_ONCE = 4
#: Longest window of workers that are sampled in rotation, as each is seen now and then, and of a process before any is
#: measured, as it may cost far more than expected.
_ROTATION_S = 8.0
#: The account of a process that begins to train is reset, but at most once in this many seconds: the cost of its set-up
#: must leave no gap in its first steps, and a search that starts a training every few seconds must keep to the budget.
_PAID_ANEW_S = 60.0

#: Seconds since the latest training began until sampling that takes cores from it spares them, and the share of the
#: budget that it uses from then on: our choice. If a pool of threads computes on all cores, a step is longer by up to
#: twice the CPU that py-spy uses (measured as 2 to 4 % with steps of 1.3 ms on two cores, as 1 % with this share).
_FULL_S = 30.0
_SPARING_RATIO = 0.25

#: A process: its pid and its start.
ProcessKey = tuple[int, int | None]


class PlannedWindow(Struct, frozen=True, gc=False):
    """A window that may begin now, with its expected cost."""

    key: ProcessKey
    plan: WindowPlan
    cpu_s: float
    bucket: CpuBudget
    cost: CostModel

    def settle(self, samples: int | None, cpu_s: float) -> None:
        """Charge the real cost; ``samples``: how many it took, None if it failed: then the cost is not learned from."""
        self.bucket.spend(cpu_s - self.cpu_s)
        if samples is not None:
            self.cost.add_window(samples, cpu_s)


class _Rotation(Struct):
    """Processes that share a part of the budget, in rotation."""

    bucket: CpuBudget
    first_windows: int  # number of short windows that a process begins with
    longest_s: float = math.inf
    order: list[int] = field(default_factory=list)

    def rotation(self, pids: Sequence[int]) -> list[int]:
        """These processes, the one that has waited longest first."""
        wanted, known = set(pids), set(self.order)
        if wanted != known:
            self.order = [pid for pid in self.order if pid in wanted] + [pid for pid in pids if pid not in known]
        return list(self.order)

    def move_to_end(self, pid: int) -> None:
        """Move a process to the end, as its window begins."""
        self.order.remove(pid)
        self.order.append(pid)


class _Sampled(Struct):
    """One process."""

    cost: CostModel
    windows: int = 0  # windows since it trains


class WindowSchedule:
    """Divides the budget among the processes, and decides which of them may be sampled now."""

    def __init__(self, budget_ratio: float, limit_hz: float, now_s: float) -> None:
        self.budget_ratio = budget_ratio
        self.are_cores_crowded = False
        self._limit_hz = limit_hz
        shares = split_budget(budget_ratio, 1, 0)
        self._focus = _Rotation(CpuBudget(shares.focus, now_s), first_windows=2)
        self._others = _Rotation(CpuBudget(0.0, now_s), first_windows=0)
        self._workers = _Rotation(CpuBudget(0.0, now_s), first_windows=1)
        self._processes: dict[ProcessKey, _Sampled] = {}
        self._paid_anew_s = -math.inf
        self._began_s = now_s  # the latest training
        self.gil_ratio = shares.gil

    def restart_short_windows(self, key: ProcessKey) -> None:
        """Have this process begin with short windows again."""
        self._process(key).windows = 0

    def begin_training(self, key: ProcessKey, now_s: float) -> None:
        """Have a process that begins to train start with short windows again, without debt from its set-up.

        A sample of imports costs several times as much as one of the training, so it does not predict its cost.
        """
        self._processes.pop(key, None)
        self._began_s = now_s
        if now_s - self._paid_anew_s >= _PAID_ANEW_S:
            self._paid_anew_s = now_s
            # a new bucket: the excess cost of a window that still runs is taken from the old one
            self._focus.bucket = CpuBudget(self._focus.bucket.ratio, now_s)

    def ratio(self, now_s: float) -> float:
        """The part of a core to use now: less than the budget if a training has no core to spare."""
        is_sparing = self.are_cores_crowded and now_s - self._began_s >= _FULL_S
        return self.budget_ratio * (_SPARING_RATIO if is_sparing else 1.0)

    def due_windows(
        self,
        trainers: Sequence[int],
        workers: Sequence[int],
        key_of: Callable[[int], ProcessKey],
        running: Container[int],
        now_s: float,
        waits_for_retry: Callable[[ProcessKey], bool] = lambda _: False,
    ) -> Iterator[PlannedWindow]:
        """The windows to begin now, of processes that are not being sampled (``running``) and wait for no retry.

        Each counts as begun, and its expected cost as spent, once it is yielded.
        """
        shares = split_budget(self.ratio(now_s), len(trainers), len(workers))
        self.gil_ratio = shares.gil
        at_once = min(len(workers), max(1, len(trainers)), _WORKERS_AT_ONCE)
        self._workers.longest_s = _ROTATION_S if len(workers) > at_once else math.inf
        for group, pids, ratio, streams in (
            (self._focus, trainers[:1], shares.focus, 1),
            (self._others, trainers[1:], shares.others, len(trainers) - 1),
            (self._workers, workers, shares.workers, at_once),
        ):
            group.bucket.fill_at(ratio)
            rotation = group.rotation(pids)
            waiting = [pid for pid in rotation if pid not in running]
            room = max(streams - (len(rotation) - len(waiting)), 0)
            may_begin = (key for key in map(key_of, waiting) if not waits_for_retry(key))
            for key in islice(may_begin, room):  # one at a time: with many, most wait anyway
                process = self._process(key)
                measured = process.windows > 0
                longest_s = group.longest_s if measured else min(group.longest_s, _ROTATION_S)
                plan = plan_window(process.cost, ratio / max(streams, 1), self._limit_hz, longest_s)
                if not group.bucket.allows_window(now_s, plan.continuous and measured):
                    break
                yield self._begun(group, key, process, plan)

    def _begun(self, group: _Rotation, key: ProcessKey, process: _Sampled, plan: WindowPlan) -> PlannedWindow:
        cost = process.cost
        if process.windows < group.first_windows:
            window_s = min(plan.window_s, FIRST_WINDOWS_S[process.windows])
            # at a rate high enough to show something unless that costs too much
            bearable_hz = cost.affordable_hz(group.bucket.ratio * 10.0, window_s)  # the budget of 10 s
            rate_hz = min(max(plan.rate_hz, START_HZ), bearable_hz, self._limit_hz)
            plan = plan._replace(rate_hz=max(int(rate_hz), 1), window_s=window_s)
        process.windows += 1
        group.move_to_end(key[0])
        cpu_s = cost.window_cpu_s(plan.rate_hz, plan.window_s)
        group.bucket.spend(cpu_s)
        return PlannedWindow(key, plan, cpu_s, group.bucket, cost)

    def _process(self, key: ProcessKey) -> _Sampled:
        if key not in self._processes:
            self._processes[key] = _Sampled(CostModel(len(procfs.thread_ids(key[0]))))
        return self._processes[key]

    def forget_others(self, wanted: Container[ProcessKey]) -> None:
        """Drop the data on processes that are no longer sampled."""
        self._processes = {key: process for key, process in self._processes.items() if key in wanted}


class SampledProcesses:
    """The processes to sample, found again whenever the process table has changed.

    Training processes, the first rank first, and their DataLoader workers and other children.
    """

    def __init__(self, table: ProcessTable) -> None:
        self.trainers: Sequence[int] = ()  # to be sampled all the time
        self.workers: Sequence[int] = ()  # in rotation
        self.keys: Mapping[int, ProcessKey] = {}  # of both
        self._table = table
        self._first: int | None = None
        self._version: object = None
        self._until_s = 0.0

    def are_due(self, now_s: float) -> bool:
        """True if they may have changed."""
        is_same = self._version is self._table.version and self._first == self._table.sampled_first
        return not is_same or now_s >= self._until_s

    def find(self, now_s: float) -> None:
        # first, so that a later change is seen
        self._version, self._first = self._table.version, self._table.sampled_first
        roles, training = self._table.roles, self._table.trainers()
        trainers = training | {pid for pid, role in roles.items() if role == "trainer"}
        serving = [pid for pid, role in roles.items() if role in ("worker", "child") and pid not in trainers]
        self.workers = sorted(serving, key=lambda pid: roles[pid] == "child")  # these may do nothing for long
        # a rank may be reported later than its process
        self._until_s = now_s + 1.0 if training else 0.0  # before that any may become a Python process
        if not trainers and not self.workers:
            trainers = frozenset(pid for pid in roles or self._table.pids() if is_python(pid))
        self.trainers = sorted(self._table.by_rank(trainers), key=lambda pid: pid != self._first)
        self.keys = {pid: (pid, self._table.start_ticks(pid)) for pid in (*self.trainers, *self.workers)}

    def key(self, pid: int) -> ProcessKey:
        """The key of a process: its pid and start."""
        return self.keys.get(pid) or (pid, self._table.start_ticks(pid))
