"""Whose window is next: the first rank all the time, other ranks and DataLoader workers as the budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tuimon.proc import procfs
from tuimon.sources.stacks.budget import START_HZ, Allowance, CostModel, Plan, plan, split

#: The first windows of a process, and of one that begins to train, are short: something shows early.
FIRST_WINDOWS_S = (0.6, 2.0)
_WORKERS_AT_ONCE = 4
#: Workers that take turns have short ones: each is seen now and then.
_TURN_S = 4.0
#: The first window of a process may cost far more than expected: it is no long one.
_UNMEASURED_S = 8.0
#: A first window may use as much as this many seconds of its group's budget.
_FIRST_BURST_S = 10.0

#: A process: its pid and its start.
Key = tuple[int, int | None]


class Turn(NamedTuple):
    """A window that may begin now, and what it is expected to cost."""

    key: Key
    plan: Plan
    cpu_s: float
    allowance: Allowance


@dataclass(slots=True)
class _Group:
    """Processes that share a part of the budget, the one that has waited longest first."""

    allowance: Allowance
    first_windows: int  # how many short ones a process begins with
    longest_s: float = math.inf
    order: list[int] = field(default_factory=list)

    def queue(self, pids: Sequence[int]) -> list[int]:
        """The processes in turn."""
        wanted, known = set(pids), set(self.order)
        self.order = [pid for pid in self.order if pid in wanted] + [pid for pid in pids if pid not in known]
        return list(self.order)

    def took(self, pid: int) -> None:
        """This process had its turn."""
        self.order.remove(pid)
        self.order.append(pid)


class Turns:
    """Divides the budget among the processes and says which may be sampled now."""

    def __init__(self, budget_ratio: float, limit_hz: float, now_s: float) -> None:
        self._budget_ratio = budget_ratio
        self._limit_hz = limit_hz
        shares = split(budget_ratio, 1, 0)
        self._focus = _Group(Allowance(shares.focus, now_s), first_windows=2)
        self._others = _Group(Allowance(0.0, now_s), first_windows=0)
        self._workers = _Group(Allowance(0.0, now_s), first_windows=1)
        self._costs: dict[Key, CostModel] = {}
        self._windows: dict[Key, int] = {}  # how many each process has had, since it trains
        self.gil_ratio = shares.gil

    def learn(self, key: Key, instants: int, cpu_s: float) -> None:
        """A window of this process has cost so much."""
        self._cost(key).learn(instants, cpu_s)

    def begin_anew(self, key: Key) -> None:
        """The next windows of this process are its first."""
        self._windows.pop(key, None)

    def due(
        self,
        trainers: Sequence[int],
        workers: Sequence[int],
        key_of: Callable[[int], Key],
        running: Container[int],
        now_s: float,
        failing: Callable[[Key], bool] = lambda _: False,
    ) -> Iterator[Turn]:
        """The windows to begin now. ``running``: being sampled; ``failing``: not to be tried yet.

        Each turn counts as taken, its cost as spent: what it has cost more or less is spent when it has ended.
        """
        shares = split(self._budget_ratio, len(trainers), len(workers))
        self.gil_ratio = shares.gil
        at_once = min(len(workers), max(1, len(trainers)), _WORKERS_AT_ONCE)
        self._workers.longest_s = _TURN_S if len(workers) > at_once else math.inf
        for group, pids, ratio, streams in (
            (self._focus, trainers[:1], shares.focus, 1),
            (self._others, trainers[1:], shares.others, len(trainers) - 1),
            (self._workers, workers, shares.workers, at_once),
        ):
            group.allowance.ratio = ratio
            queue = group.queue(pids)
            room = streams - sum(pid in running for pid in queue)
            waiting = [key_of(pid) for pid in queue if pid not in running]
            waiting = [key for key in waiting if not failing(key)]
            for key in waiting[: max(room, 0)]:
                measured = self._windows.get(key, 0) > 0
                longest_s = group.longest_s if measured else min(group.longest_s, _UNMEASURED_S)
                chosen = plan(self._cost(key), ratio / max(streams, 1), self._limit_hz, longest_s)
                if not group.allowance.open(now_s, chosen.steady and measured):
                    break
                yield self._turn(group, key, chosen)

    def _turn(self, group: _Group, key: Key, chosen: Plan) -> Turn:
        cost = self._cost(key)
        had = self._windows.get(key, 0)
        if had < group.first_windows:
            chosen = self._first(cost, chosen, group.allowance.ratio, min(chosen.window_s, FIRST_WINDOWS_S[had]))
        self._windows[key] = had + 1
        group.took(key[0])
        cpu_s = cost.window_cpu_s(chosen.rate_hz, chosen.window_s)
        group.allowance.spend(cpu_s)
        return Turn(key, chosen, cpu_s, group.allowance)

    def _first(self, cost: CostModel, chosen: Plan, ratio: float, window_s: float) -> Plan:
        """A short window, dense enough to show something, unless that is dear."""
        bearable_hz = cost.affordable_hz(ratio * _FIRST_BURST_S, window_s)
        rate_hz = min(max(chosen.rate_hz, START_HZ), bearable_hz, self._limit_hz)
        return chosen._replace(rate_hz=max(int(rate_hz), 1), window_s=window_s)

    def _cost(self, key: Key) -> CostModel:
        if key not in self._costs:
            self._costs[key] = CostModel(len(procfs.thread_ids(key[0])))
        return self._costs[key]

    def forget(self, gone: Callable[[Key], bool]) -> None:
        """Let go of what was known of processes that are no more."""
        for known in (self._costs, self._windows):
            for key in [key for key in known if gone(key)]:
                del known[key]
