"""What is summed up of one rank's last 30 s, record by record: a thousand ranks are asked about every second."""

from __future__ import annotations

from collections import deque
from operator import add, sub
from typing import NamedTuple

from msgspec import Struct

from tuimon.records import PHASES, Steps, Threads
from tuimon.session.ranks.shared_steps import SharedSteps
from tuimon.session.windows import WINDOW_S

#: Phases of a step, ``between`` among them; evaluation is of no step.
PARTS = (*(name for name in PHASES if name != "eval"), "between")
_PART = {name: place for place, name in enumerate(PARTS)}
#: How many windows of a rank the strip over time can show.
HISTORY = 256


class RankWindow(Struct, frozen=True, gc=False):  # 256 of each rank: not for the garbage collector to go through
    """Steps that ended in one window: sums in ns, and how much of the window the main thread ran or wanted to."""

    t: float
    window_s: float
    steps: int
    parts_ns: tuple[int, ...]  # of PARTS
    gc_ns: int
    busy_ratio: float | None


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


class _MainThreads:
    """Windows of the main thread over the last 30 s; values that are None count for nothing."""

    __slots__ = ("_counts", "_sums", "_windows")

    def __init__(self) -> None:
        self._windows: deque[tuple[float, float | None, float | None, bool]] = deque()
        self._sums, self._counts = [0.0, 0.0, 0.0], [0, 0, 0]

    def add_window(self, t: float, cpu_ratio: float | None, delay_ratio: float | None, is_stopped: bool) -> None:
        """Add one that ended at ``t``."""
        self._windows.append((t, cpu_ratio, delay_ratio, is_stopped))
        self._add(cpu_ratio, delay_ratio, is_stopped, 1)
        while self._windows[0][0] < t - WINDOW_S:
            self._add(*self._windows.popleft()[1:], -1)

    def _add(self, cpu_ratio: float | None, delay_ratio: float | None, is_stopped: bool, sign: int) -> None:
        sums, counts = self._sums, self._counts
        if cpu_ratio is not None:
            sums[0] += sign * cpu_ratio
            counts[0] += sign
        if delay_ratio is not None:
            sums[1] += sign * delay_ratio
            counts[1] += sign
        sums[2] += sign * is_stopped
        counts[2] += sign

    @property
    def latest(self) -> MainThread:
        """The window added last."""
        if not self._windows:
            return MainThread()
        _, cpu_ratio, delay_ratio, is_stopped = self._windows[-1]
        return MainThread(cpu_ratio, delay_ratio, float(is_stopped))

    @property
    def mean(self) -> MainThread:
        """Of all."""
        cpu, delay, stopped = (
            max(0.0, total / count) if count else None for total, count in zip(self._sums, self._counts, strict=True)
        )
        return MainThread(cpu, delay, stopped or 0.0)


class RankStats:
    """Folds the Steps and Threads records of one process."""

    __slots__ = (
        "_main", "gc_ns", "history", "open_phase", "parts_ns", "recent", "shared", "steps", "total",
    )  # fmt: skip

    def __init__(self) -> None:
        self.history: deque[RankWindow] = deque(maxlen=HISTORY)
        self.recent: deque[RankWindow] = deque()
        self.shared = SharedSteps()
        self._main = _MainThreads()
        self.total = 0  # steps since it began
        self.open_phase: str | None = None
        self.steps = 0  # of the last 30 s, as all sums
        self.parts_ns = [0] * len(PARTS)
        self.gc_ns = 0

    def add_steps(self, record: Steps) -> None:
        """Fold a window of steps."""
        self.total, self.open_phase = record.first_index + record.count, record.open_phase
        self.shared.add_steps(record)
        parts = [0] * len(PARTS)
        for phase in record.phases:
            place = _PART.get(phase.name)
            if place is not None:
                parts[place] += phase.total_ns
        busy_ratio = self._main.latest.busy_ratio
        window = RankWindow(record.t, record.window_s, record.count, tuple(parts), record.gc_ns or 0, busy_ratio)
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
        self.parts_ns = list(map(add if sign > 0 else sub, self.parts_ns, window.parts_ns))

    def add_threads(self, record: Threads) -> None:
        """Fold a window of threads."""
        for row in record.threads:
            if row.tid == record.pid:
                self._main.add_window(record.t, row.cpu_ratio, row.delay_ratio, row.state == "stopped")
                return

    def steps_within(self, seconds: float) -> float:
        """How many steps it makes in a time, at most in one as long as its longest window: by the last 30 s."""
        lengths = [window.window_s for window in self.recent]
        return self.steps / sum(lengths) * min(max(seconds, 0.0), max(lengths)) if lengths else 0.0

    def part_ms(self) -> dict[str, float] | None:
        """Mean ms of a step by part; None without a step."""
        if not self.steps:
            return None
        return {name: ns / self.steps / 1e6 for name, ns in zip(PARTS, self.parts_ns, strict=True)}

    def main_thread(self) -> MainThread:
        """Means of the last 30 s."""
        return self._main.mean

    @property
    def is_stopped(self) -> bool:
        """Whether the main thread was stopped at the end of its latest window."""
        return self._main.latest.stopped_ratio == 1.0
