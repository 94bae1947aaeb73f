"""How often and how long to sample within a CPU budget, from what py-spy children have cost so far."""

from __future__ import annotations

import math
from typing import NamedTuple

#: Highest rate of any window, and the rate that a process's first windows begin with.
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
#: A sample takes at least a few system calls, and a start at least this long, whatever the fitted line gives.
_LEAST_SAMPLE_S = 2e-5
_LEAST_START_S = 0.001
#: Weight that each new window leaves to all earlier ones, and to what was expected before any, which keeps a little.
_DECAY = 0.9
_PRIOR_DECAY, _PRIOR_LEAST = 0.6, 0.05
#: More threads than this do not raise the expected cost of a process.
_THREADS_COUNTED = 256


class WindowPlan(NamedTuple):
    """Rate in whole Hz (py-spy takes no others) and length in seconds of a window."""

    rate_hz: int
    window_s: float
    continuous: bool  # the budget allows the next one to follow at once


class Shares(NamedTuple):
    """Parts of the budget, as ratios of one core."""

    focus: float  # the first training process
    others: float  # the other training processes together
    workers: float  # DataLoader workers together
    gil: float  # who holds the GIL


def split_budget(budget_ratio: float, trainers: int, workers: int) -> Shares:
    """The parts for so many processes: the first rank, which people watch, is sampled well however many others run.

    A budget of 0.03 gives one trainer alone 0.0276; with 8 workers beside it 0.0193, and 0.0083 for all of them.
    """
    left = 0.92 * budget_ratio
    gil = budget_ratio - left
    of_workers = left * (0.3 if trainers else 1.0) if workers else 0.0
    left -= of_workers
    focus = left if trainers == 1 else 0.4 * left if trainers else 0.0
    return Shares(focus, left - focus if trainers > 1 else 0.0, of_workers, gil)


class _Sums(NamedTuple):
    """Sums over the points (x, y) that a line is fitted to."""

    n: float = 0.0
    x: float = 0.0
    xx: float = 0.0
    y: float = 0.0
    xy: float = 0.0

    def plus(self, other: _Sums) -> _Sums:
        """The points of both."""
        return _Sums(*(mine + yours for mine, yours in zip(self, other, strict=True)))

    def times(self, weight: float) -> _Sums:
        """Each point with this weight."""
        return _Sums(*(weight * value for value in self))

    @classmethod
    def of(cls, x: float, y: float) -> _Sums:
        """One point."""
        return cls(1.0, x, x * x, y, x * y)


class CostModel:
    """CPU seconds of a window = start + samples * cost of one: a least-squares line through recent windows.

    The prior counts as two early windows, so that windows of one and the same length still define a line. The first
    one that was measured sets how dear they are: beside dear ones that stay cheap a line falls, and samples seem to
    cost nothing. Cost depends on the number of threads above all: each process has a model of its own.
    """

    def __init__(self, threads: int = 4) -> None:
        """``threads``: of the process, as far as known before anything is measured."""
        threads = min(max(threads, 1), _THREADS_COUNTED)
        self._prior_sample_s = _SAMPLE_S + threads * _THREAD_SAMPLE_S
        start_s = _START_S + threads * _THREAD_START_S
        short, long = (_Sums.of(samples, start_s + samples * self._prior_sample_s) for samples in (10.0, 100.0))
        self._expected, self._weight = short.plus(long), 1.0
        self._measured = _Sums()
        self._sums = self._expected

    def add_window(self, samples: int, cpu_s: float) -> None:
        """Add the measured cost of a window."""
        if not self._measured.n:
            dearer = max(1.0, cpu_s / (self.start_s + samples * self.sample_s))
            self._expected = self._expected._replace(y=dearer * self._expected.y, xy=dearer * self._expected.xy)
        self._weight = max(_PRIOR_DECAY * self._weight, _PRIOR_LEAST)
        self._measured = self._measured.times(_DECAY).plus(_Sums.of(float(samples), cpu_s))
        self._sums = self._expected.times(self._weight).plus(self._measured)

    @property
    def sample_s(self) -> float:
        """CPU seconds of one sample of the process, all its threads."""
        n, x, xx, y, xy = self._sums
        spread = n * xx - x * x
        slope = (n * xy - x * y) / spread if spread > 1e-9 else self._prior_sample_s
        return min(max(slope, _LEAST_SAMPLE_S), y / max(x, 1.0))  # a negative slope or start is noise

    @property
    def start_s(self) -> float:
        """CPU seconds to start and end a window."""
        return max((self._sums.y - self.sample_s * self._sums.x) / self._sums.n, _LEAST_START_S)

    def window_cpu_s(self, rate_hz: float, window_s: float) -> float:
        """CPU seconds that such a window is expected to cost."""
        return self.start_s + rate_hz * window_s * self.sample_s

    def affordable_hz(self, cpu_s: float, window_s: float) -> float:
        """The rate at which a window costs this much; negative if its start alone costs more."""
        return (cpu_s - self.start_s) / (window_s * self.sample_s)


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


class TokenBucket:
    """CPU seconds that may be spent: filled at ``ratio``, holds 8 seconds' worth, may go into debt.

    A window's expected cost is spent when it begins, the difference to its real cost when it ends: however many
    processes wait, no more windows begin than can be paid for.
    """

    _HOLDS_S = 8.0

    def __init__(self, ratio: float, now_s: float) -> None:
        self.ratio = ratio
        self._balance_s = ratio * self._HOLDS_S
        self._at_s = now_s

    def fill_at(self, ratio: float) -> None:
        """Fill at another ratio from now on; what it holds, or owes, lasts for as long as before."""
        if self.ratio > 0 and ratio < self.ratio:
            self._balance_s *= ratio / self.ratio
        self.ratio = ratio

    def spend(self, cpu_s: float) -> None:
        """Take CPU seconds out; a negative number puts back what a window did not use."""
        self._balance_s -= cpu_s

    def allows_window(self, now_s: float, continuous: bool = False) -> bool:
        """True if another window may begin.

        One of a continuous plan, which keeps to its share by itself, may as long as the debt is at most what the bucket
        holds: else every window that costs a little more than expected would leave a gap.
        """
        holds_s = self.ratio * self._HOLDS_S
        self._balance_s = min(self._balance_s + (now_s - self._at_s) * self.ratio, holds_s)
        self._at_s = now_s
        return self._balance_s > (-holds_s if continuous else 0.0)
