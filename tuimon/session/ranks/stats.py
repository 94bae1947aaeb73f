"""The sums over one rank's last 30 s, record by record: a thousand ranks are queried every second."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from itertools import takewhile
from operator import add, sub
from typing import overload

from msgspec import Struct

from tuimon.records import PHASES, Steps, Threads
from tuimon.session.ranks.shared_steps import SharedSteps
from tuimon.session.windows import WINDOW_S, shared_limit

#: Phases of a step, ``between`` among them; evaluation belongs to no step.
PARTS = (*(name for name in PHASES if name != "eval"), "between")
_PART = {name: place for place, name in enumerate(PARTS)}
#: How many windows of a rank the strip over time can show.
HISTORY = 256
#: And of a rank among many.
_LEAST = 96
#: The fields of a RankWindow; busy: not a number where it was not measured. Integers have room: 104 days of ns.
_ROW = struct.Struct(f"{len(PARTS) + 5}d")
_PARTS_AT = 3
_TIME = struct.Struct("d")  # its first field
_LENGTH = struct.Struct(f"8xd{_ROW.size - 16}x")  # its second one


class RankWindow(Struct, frozen=True, gc=False):
    """Steps that ended in one window: sums in ns, and how much of the window the main thread ran or wanted to."""

    t: float
    window_s: float
    steps: int
    parts_ns: tuple[int, ...]  # of PARTS
    gc_ns: int
    busy_ratio: float | None


class LatestWindow(Struct, frozen=True, gc=False):
    """When the latest window of a rank ended, its length, and how many steps ended in it."""

    t: float
    window_s: float
    steps: int


class MainThread(Struct, frozen=True, gc=False):
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


class RankWindows(Sequence[RankWindow]):
    """The windows of one rank, oldest first, packed: as an object each would take four times as much."""

    __slots__ = ("_count", "_packed")

    def __init__(self) -> None:
        self._packed = bytearray()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> RankWindow: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[RankWindow]: ...

    def __getitem__(self, at: int | slice) -> RankWindow | Sequence[RankWindow]:
        if isinstance(at, slice):
            return [self[number] for number in range(self._count)[at]]
        row = _ROW.unpack_from(self._packed, range(self._count)[at] * _ROW.size)
        busy_ratio = None if math.isnan(row[-1]) else row[-1]
        return RankWindow(row[0], row[1], int(row[2]), tuple(map(int, row[_PARTS_AT:-2])), int(row[-2]), busy_ratio)

    def from_end(self, number: int) -> tuple[float, ...]:
        """The fields of one of the latest as they are packed, 1: the latest."""
        return _ROW.unpack_from(self._packed, (self._count - number) * _ROW.size)

    def ended_s(self, number: int) -> float:
        """When one of the latest ended, as ``from_end`` counts them."""
        (t,) = _TIME.unpack_from(self._packed, (self._count - number) * _ROW.size)
        return t  # type: ignore[no-any-return]  # what a struct holds has no type

    def lengths_s(self, count: int) -> list[float]:
        """How long the latest so many were."""
        first = max(0, self._count - count)
        return [length_s for (length_s,) in _LENGTH.iter_unpack(self._packed[first * _ROW.size :])]

    def append_row(self, *fields: float) -> None:
        """Add the next one."""
        self._packed += _ROW.pack(*fields)
        self._count += 1

    def keep(self, count: int) -> None:
        """Let go of all but the latest so many."""
        if self._count > count:
            del self._packed[: (self._count - count) * _ROW.size]
            self._count = count


class _MainThreads:
    """Windows of the main thread over the last 30 s; values that are None count for nothing."""

    __slots__ = ("_counts", "_rows", "_sums")

    def __init__(self) -> None:
        self._rows = array("d")  # the time of each, and its values: not a number for None
        self._sums, self._counts = [0.0, 0.0, 0.0], [0, 0, 0]

    def add_window(self, t: float, cpu_ratio: float | None, delay_ratio: float | None, is_stopped: bool) -> None:
        """Add one that ended at ``t``."""
        rows = self._rows
        cpu, delay = math.nan if cpu_ratio is None else cpu_ratio, math.nan if delay_ratio is None else delay_ratio
        rows.extend((t, cpu, delay, is_stopped))
        self._add((cpu, delay, is_stopped), 1)
        since_s = t - WINDOW_S
        while rows[0] < since_s:
            self._add(rows[1:4], -1)
            del rows[:4]

    def _add(self, values: Sequence[float], sign: int) -> None:
        sums, counts = self._sums, self._counts
        for place, value in enumerate(values):
            if value == value:  # a number  # noqa: PLR0124
                sums[place] += sign * value
                counts[place] += sign

    @property
    def latest_busy(self) -> float:
        """``busy_ratio`` of the window added last; not a number where it is not known."""
        return min(self._rows[-3] + self._rows[-2], 1.0) if self._rows else math.nan  # in this order NaN stays

    @property
    def is_stopped(self) -> bool:
        """True if the thread was stopped at the end of the window added last."""
        return bool(self._rows) and self._rows[-1] == 1.0

    @property
    def mean(self) -> MainThread:
        """The mean of all."""
        cpu, delay, stopped = (
            max(0.0, total / count) if count else None for total, count in zip(self._sums, self._counts, strict=True)
        )
        return MainThread(cpu, delay, stopped or 0.0)


class RankStats:
    """Folds the Steps and Threads records of one process."""

    __slots__ = (
        "_recent", "gc_ns", "history", "latest", "main", "open_phase", "parts_ns", "shared", "steps", "tid", "total",
    )  # fmt: skip

    def __init__(self) -> None:
        self.history = RankWindows()
        self.latest: LatestWindow | None = None
        self._recent = 0  # so many of them are of the last 30 s
        self.shared = SharedSteps()
        self.main = _MainThreads()
        self.tid: int | None = None  # of the thread that trains, where it is not the main one
        self.total = 0  # steps since it began
        self.open_phase: str | None = None
        self.steps = 0  # of the last 30 s, as all sums
        self.parts_ns = [0] * len(PARTS)
        self.gc_ns = 0

    def add_steps(self, record: Steps, ranks: int = 1) -> None:
        """Fold a window of steps; of one of so many ranks."""
        self.total, self.open_phase = record.first_index + record.count, record.open_phase
        self.latest = LatestWindow(record.t, record.window_s, record.count)
        self.tid = record.tid
        self.shared.add_steps(record)
        parts = [0] * len(PARTS)
        for phase in record.phases:
            place = _PART.get(phase.name)
            if place is not None:
                parts[place] += phase.total_ns
        gc_ns = record.gc_ns or 0
        self.history.append_row(record.t, record.window_s, record.count, *parts, gc_ns, self.main.latest_busy)
        self._recent += 1
        self.steps += record.count
        self.gc_ns += gc_ns
        self.parts_ns = list(map(add, self.parts_ns, parts))
        self._drop_old(record.t - WINDOW_S, ranks)

    def _drop_old(self, since_s: float, ranks: int) -> None:
        history = self.history
        while self._recent > 1 and history.ended_s(self._recent) < since_s:
            oldest = history.from_end(self._recent)
            steps = int(oldest[2])
            if self.steps <= steps > 0:  # steps may be longer than 30 s: the latest that ended stays
                break
            self._recent -= 1
            self.steps -= steps
            self.gc_ns -= int(oldest[-2])
            self.parts_ns = list(map(sub, self.parts_ns, map(int, oldest[_PARTS_AT:-2])))
        history.keep(max(shared_limit(HISTORY, _LEAST, ranks), self._recent))

    def add_threads(self, record: Threads) -> None:
        """Fold a window of threads."""
        for row in record.threads:
            if row.tid == (self.tid or record.pid):
                self.main.add_window(record.t, row.cpu_ratio, row.delay_ratio, row.state == "stopped")
                return

    def steps_within(self, seconds: float) -> float:
        """How many steps it makes in a time, at most in one as long as its longest window: by the last 30 s."""
        lengths = self.history.lengths_s(self._recent)
        return self.steps / sum(lengths) * min(max(seconds, 0.0), max(lengths)) if lengths else 0.0

    def has_stepped_since(self, t: float) -> bool:
        """True if a step ended in a window that began after a moment."""
        rows = (self.history.from_end(number) for number in range(1, len(self.history) + 1))
        since = takewhile(lambda row: row[0] - row[1] >= t, rows)
        return any(row[2] for row in since)

    def part_ms(self) -> dict[str, float] | None:
        """Mean ms of a step by part; None without a step."""
        if not self.steps:
            return None
        return {name: ns / self.steps / 1e6 for name, ns in zip(PARTS, self.parts_ns, strict=True)}
