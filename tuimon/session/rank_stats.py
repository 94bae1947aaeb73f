"""What is summed up of one rank's last 30 s, record by record: a thousand ranks are asked about every second."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tuimon.records import PHASES, Steps, Threads
from tuimon.session.windows import WINDOW_S

#: Phases of a step, ``between`` among them; evaluation is of no step.
PARTS = (*(name for name in PHASES if name != "eval"), "between")
_PART = {name: place for place, name in enumerate(PARTS)}
#: How many windows of a rank the strip over time can show.
HISTORY = 256


class RankWindow(NamedTuple):
    """Steps that ended in one window: sums in ns, and how much of the window the main thread ran or wanted to."""

    t: float
    window_s: float
    steps: int
    parts_ns: tuple[int, ...]  # of PARTS
    gc_ns: int
    busy_ratio: float | None


class ThreadWindow(NamedTuple):
    """The main thread in one window."""

    t: float
    cpu_ratio: float | None
    delay_ratio: float | None
    stopped: bool


class MainThread(NamedTuple):
    """Means of the main thread; None where the kernel does not report it."""

    cpu_ratio: float | None = None
    delay_ratio: float | None = None
    stopped_ratio: float = 0.0  # share of the windows at whose end it was stopped

    @property
    def busy_ratio(self) -> float | None:
        """Share of time in which it ran or wanted to."""
        if self.cpu_ratio is None or self.delay_ratio is None:
            return None
        return min(1.0, self.cpu_ratio + self.delay_ratio)


class RankStats:
    """Folds the Steps and Threads records of one process."""

    __slots__ = ("_threads", "gc_ns", "history", "open_phase", "parts_ns", "recent", "steps", "total")

    def __init__(self) -> None:
        self.history: deque[RankWindow] = deque(maxlen=HISTORY)
        self.recent: deque[RankWindow] = deque()
        self._threads: deque[ThreadWindow] = deque()
        self.total = 0  # steps since it began
        self.open_phase: str | None = None
        self.steps = 0  # of the last 30 s, as all sums
        self.parts_ns = [0] * len(PARTS)
        self.gc_ns = 0

    def add_steps(self, record: Steps) -> None:
        """Fold a window of steps."""
        self.total, self.open_phase = record.first_index + record.count, record.open_phase
        parts = [0] * len(PARTS)
        for phase in record.phases:
            place = _PART.get(phase.name)
            if place is not None:
                parts[place] += phase.total_ns
        busy = self._threads[-1] if self._threads else None
        ratio = MainThread(busy.cpu_ratio, busy.delay_ratio).busy_ratio if busy is not None else None
        window = RankWindow(record.t, record.window_s, record.count, tuple(parts), record.gc_ns or 0, ratio)
        self.history.append(window)
        self.recent.append(window)
        self._sum(window, 1)
        while len(self.recent) > 1 and self.recent[0].t < record.t - WINDOW_S and self._may_drop():
            self._sum(self.recent.popleft(), -1)

    def _may_drop(self) -> bool:
        """Steps may be longer than 30 s: the latest that ended stays."""
        return self.steps > self.recent[0].steps or not self.recent[0].steps

    def _sum(self, window: RankWindow, sign: int) -> None:
        self.steps += sign * window.steps
        self.gc_ns += sign * window.gc_ns
        for place, ns in enumerate(window.parts_ns):
            self.parts_ns[place] += sign * ns

    def add_threads(self, record: Threads) -> None:
        """Fold a window of threads."""
        main = next((row for row in record.threads if row.tid == record.pid), None)
        if main is None:
            return
        self._threads.append(ThreadWindow(record.t, main.cpu_ratio, main.delay_ratio, main.state == "stopped"))
        while self._threads[0].t < record.t - WINDOW_S:
            self._threads.popleft()

    def part_ms(self) -> dict[str, float] | None:
        """Mean ms of a step by part; None without a step."""
        if not self.steps:
            return None
        return {name: ns / self.steps / 1e6 for name, ns in zip(PARTS, self.parts_ns, strict=True)}

    def main_thread(self) -> MainThread:
        """Means of the last 30 s."""
        rows = self._threads
        if not rows:
            return MainThread()
        stopped = sum(row.stopped for row in rows) / len(rows)
        return MainThread(_mean(r.cpu_ratio for r in rows), _mean(r.delay_ratio for r in rows), stopped)

    @property
    def is_stopped(self) -> bool:
        """Whether the main thread was stopped at the end of its latest window."""
        return bool(self._threads) and self._threads[-1].stopped


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
