"""What is summed up of one rank's last 30 s, record by record: a thousand ranks are asked about every second."""

from __future__ import annotations

from collections import deque
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


class _Mean:
    """Of the values of the last 30 s; None values count for nothing."""

    __slots__ = ("_count", "_sum", "_values")

    def __init__(self) -> None:
        self._values: deque[tuple[float, float | None]] = deque()
        self._sum, self._count = 0.0, 0

    def add_value(self, t: float, value: float | None) -> None:
        """Add the value of a window."""
        self._values.append((t, value))
        self._add(value, 1)
        while self._values[0][0] < t - WINDOW_S:
            self._add(self._values.popleft()[1], -1)

    def _add(self, value: float | None, sign: int) -> None:
        if value is not None:
            self._sum += sign * value
            self._count += sign

    @property
    def latest(self) -> float | None:
        """The value added last."""
        return self._values[-1][1] if self._values else None

    @property
    def mean(self) -> float | None:
        """None without values."""
        return max(0.0, self._sum / self._count) if self._count else None


class RankStats:
    """Folds the Steps and Threads records of one process."""

    __slots__ = (
        "_cpu", "_delay", "_stopped", "gc_ns", "history", "open_phase", "parts_ns", "recent", "shared", "steps",
        "total",
    )  # fmt: skip

    def __init__(self) -> None:
        self.history: deque[RankWindow] = deque(maxlen=HISTORY)
        self.recent: deque[RankWindow] = deque()
        self.shared = SharedSteps()
        self._cpu, self._delay, self._stopped = _Mean(), _Mean(), _Mean()
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
        busy = MainThread(self._cpu.latest, self._delay.latest).busy_ratio
        window = RankWindow(record.t, record.window_s, record.count, tuple(parts), record.gc_ns or 0, busy)
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
        self._cpu.add_value(record.t, main.cpu_ratio)
        self._delay.add_value(record.t, main.delay_ratio)
        self._stopped.add_value(record.t, float(main.state == "stopped"))

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
        return MainThread(self._cpu.mean, self._delay.mean, self._stopped.mean or 0.0)

    @property
    def is_stopped(self) -> bool:
        """Whether the main thread was stopped at the end of its latest window."""
        return self._stopped.latest == 1.0
