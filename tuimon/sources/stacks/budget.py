"""How often and how long to sample within a CPU budget, from what py-spy children have cost so far."""

from __future__ import annotations

import math
from typing import NamedTuple

FASTEST_HZ = 100
START_HZ = 20
#: Length of a window in seconds, and the rate that it has to allow: each window costs a start of py-spy, but long ones
#: make for old places on screen.
WINDOWS = ((2.0, 20.0), (3.0, 20.0), (4.0, 10.0), (6.0, 8.0), (8.0, 5.0), (12.0, 3.0), (20.0, 1.0))
#: A process that cannot be sampled all the time: windows with pauses between them.
_PAUSED = ((20.0, 2.0), (8.0, 1.0))
_LONGEST_PAUSE_S = 30.0
#: Plans leave room: windows end late, and cost more when the machine is loaded.
_AIM = 0.9

#: CPU of one look and of a start grow with the number of Python threads (m: 2-core machine, py-spy 0.4, stacks of
#: 5-13 frames: 0.25 ms an instant and thread, 1 ms a start and thread, beside 10 ms a start).
_THREAD_INSTANT_S = 0.00025
_START_S = 0.01
_THREAD_START_S = 0.001
_DECAY = 0.9
_THREADS_COUNTED = 256


class Plan(NamedTuple):
    """Rate in whole Hz (py-spy takes no others), length of a window in seconds, whether one may follow the other."""

    rate_hz: int
    window_s: float
    steady: bool


class Shares(NamedTuple):
    """Parts of the budget, as ratios of one core."""

    focus: float  # the first training process
    others: float  # the other training processes together
    workers: float  # DataLoader workers together
    gil: float  # looks at who holds the GIL


def split(budget_ratio: float, trainers: int, workers: int) -> Shares:
    """The first rank is what people look at: it is sampled well whatever the number of the others."""
    left = 0.92 * budget_ratio
    gil = budget_ratio - left
    of_workers = left * (0.3 if trainers else 1.0) if workers else 0.0
    left -= of_workers
    focus = left if trainers == 1 else 0.4 * left if trainers else 0.0
    return Shares(focus, left - focus if trainers > 1 else 0.0, of_workers, gil)


class CostModel:
    """CPU seconds of a window = start + instants * cost of one: a least-squares line through recent windows.

    The prior counts as two early windows, so that windows all of one length still give a usable line. What a process
    costs depends on its threads above all: each has a model of its own.
    """

    def __init__(self, threads: int = 4) -> None:
        """``threads``: of the process, as far as known before anything is measured."""
        self._n = self._x = self._xx = self._y = self._xy = 0.0
        threads = min(max(threads, 1), _THREADS_COUNTED)
        self._prior_instant_s = threads * _THREAD_INSTANT_S
        for instants in (10.0, 100.0):
            self._count(instants, _START_S + threads * _THREAD_START_S + instants * self._prior_instant_s)

    def learn(self, instants: int, cpu_s: float) -> None:
        """One window has cost this much."""
        self._n, self._x, self._xx, self._y, self._xy = (
            _DECAY * value for value in (self._n, self._x, self._xx, self._y, self._xy)
        )
        self._count(float(instants), cpu_s)

    def _count(self, x: float, y: float) -> None:
        self._n += 1
        self._x += x
        self._xx += x * x
        self._y += y
        self._xy += x * y

    @property
    def instant_s(self) -> float:
        """CPU seconds for one look at a process."""
        spread = self._n * self._xx - self._x * self._x
        slope = (self._n * self._xy - self._x * self._y) / spread if spread > 1e-9 else self._prior_instant_s
        # a negative slope or start is noise; a look costs at least a few system calls
        return min(max(slope, 2e-5), self._y / max(self._x, 1.0))

    @property
    def start_s(self) -> float:
        """CPU seconds to start and end a window."""
        return max((self._y - self.instant_s * self._x) / self._n, 0.001)

    def window_cpu_s(self, rate_hz: float, window_s: float) -> float:
        """CPU seconds that such a window is expected to cost."""
        return self.start_s + rate_hz * window_s * self.instant_s

    def affordable_hz(self, cpu_s: float, window_s: float) -> float:
        """The rate at which a window costs so much; negative when its start alone costs more."""
        return (cpu_s - self.start_s) / (window_s * self.instant_s)


def plan(cost: CostModel, share_ratio: float, limit_hz: float = FASTEST_HZ, longest_s: float = math.inf) -> Plan:
    """The best that a share of the budget allows for one stream of windows, none longer than ``longest_s``."""
    allowed = [(window_s, hz) for window_s, hz in WINDOWS if window_s <= longest_s]
    for window_s, least_hz in allowed:
        hz = cost.affordable_hz(_AIM * share_ratio * window_s, window_s)
        if hz >= min(least_hz if window_s < allowed[-1][0] else 1.0, max(limit_hz, 1.0)):
            return Plan(_whole(hz, limit_hz), window_s, True)
    for window_s, paused_hz in _PAUSED:
        rate_hz = _whole(paused_hz, limit_hz)
        if window_s <= longest_s and cost.window_cpu_s(rate_hz, window_s) <= share_ratio * _LONGEST_PAUSE_S:
            return Plan(rate_hz, window_s, False)
    return Plan(1, _PAUSED[-1][0], False)


def _whole(rate_hz: float, limit_hz: float) -> int:
    return max(1, int(min(rate_hz, limit_hz, FASTEST_HZ)))


class Allowance:
    """CPU seconds that may be spent: grows at ``ratio``, holds at most a few seconds' worth, may go into debt.

    A window's expected cost is spent when it begins, the difference when it ends: however many processes wait for
    their turn, no more of them are begun than can be paid for.
    """

    _HOLDS_S = 8.0

    def __init__(self, ratio: float, now_s: float) -> None:
        self.ratio = ratio
        self._balance_s = ratio * self._HOLDS_S
        self._at_s = now_s

    def spend(self, cpu_s: float) -> None:
        """A child uses this much; negative: it has used less than was spent for it."""
        self._balance_s -= cpu_s

    def open(self, now_s: float, steady: bool = False) -> bool:
        """Whether another window may be started.

        One of a steady plan, which keeps to its share by itself, may as long as the debt is a few seconds' worth: else
        every window that costs a little more than expected would leave a gap.
        """
        holds_s = self.ratio * self._HOLDS_S
        self._balance_s = min(self._balance_s + (now_s - self._at_s) * self.ratio, holds_s)
        self._at_s = now_s
        return self._balance_s > (-holds_s if steady else 0.0)
