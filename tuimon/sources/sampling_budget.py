"""How often and how long to sample within a CPU budget, from what py-spy children have cost so far."""

from __future__ import annotations

from typing import NamedTuple

SLOWEST_HZ = 5
FASTEST_HZ = 100
START_HZ = 20
#: Length of a window in seconds, and the rate that it has to allow: each window costs a start of py-spy, but long ones
#: make for old places on screen.
WINDOWS = ((2.0, 20.0), (3.0, 20.0), (4.0, 10.0), (6.0, 8.0), (8.0, 0.0))
#: A worker is one of several that are sampled in turn: half the rate tells as much about all.
WORKER_RATE_SHARE = 0.5

# Before anything is measured: torch 2.13 on a 2-core machine, three Python threads.
_PRIOR_START_S = 0.02
_PRIOR_INSTANT_S = 0.0004
_DECAY = 0.9


class Plan(NamedTuple):
    """Rates in whole Hz (py-spy takes no others), length of a window in seconds."""

    trainer_hz: int
    worker_hz: int
    window_s: float


class CostModel:
    """CPU seconds of a window = start + instants * cost of one: a least-squares line through recent windows.

    The prior counts as two early windows, so that windows all of one length still give a usable line.
    """

    def __init__(self) -> None:
        self._n = self._x = self._xx = self._y = self._xy = 0.0
        for instants in (10.0, 100.0):
            self._count(instants, _PRIOR_START_S + instants * _PRIOR_INSTANT_S)

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
        slope = (self._n * self._xy - self._x * self._y) / spread if spread > 1e-9 else _PRIOR_INSTANT_S
        # a negative slope or start is noise; a look costs at least a few system calls
        return min(max(slope, 2e-5), self._y / max(self._x, 1.0))

    @property
    def start_s(self) -> float:
        """CPU seconds to start and end a window."""
        return max((self._y - self.instant_s * self._x) / self._n, 0.001)


def plan(cost: CostModel, budget_ratio: float, trainers: int, workers: int, limit_hz: float = FASTEST_HZ) -> Plan:
    """The best that the budget allows for so many windows side by side."""
    streams = max(trainers + workers, 1)
    weight = max(trainers + workers * WORKER_RATE_SHARE, WORKER_RATE_SHARE)

    def affordable_hz(window_s: float) -> float:
        return (budget_ratio - streams * cost.start_s / window_s) / (weight * cost.instant_s)

    window_s = next((w for w, hz in WINDOWS if affordable_hz(w) >= min(hz, limit_hz)), WINDOWS[-1][0])
    trainer_hz = _whole(affordable_hz(window_s), limit_hz)
    return Plan(trainer_hz, _whole(trainer_hz * WORKER_RATE_SHARE, limit_hz), window_s)


def _whole(rate_hz: float, limit_hz: float) -> int:
    return max(1, int(min(max(rate_hz, SLOWEST_HZ), limit_hz, FASTEST_HZ)))


class Allowance:
    """CPU seconds that may be spent: grows at the budget's rate, holds at most a few seconds' worth, may go into debt.

    The plan keeps sampling within the budget; this holds it there when the plan's estimate is off.
    """

    _HOLDS_S = 5.0

    def __init__(self, budget_ratio: float, now_s: float) -> None:
        self._ratio = budget_ratio
        self._balance_s = budget_ratio * self._HOLDS_S
        self._at_s = now_s

    def spend(self, cpu_s: float) -> None:
        """A child has used this much."""
        self._balance_s -= cpu_s

    def open(self, now_s: float) -> bool:
        """Whether another window may be started."""
        self._balance_s = min(self._balance_s + (now_s - self._at_s) * self._ratio, self._ratio * self._HOLDS_S)
        self._at_s = now_s
        return self._balance_s > 0.0
