"""Sums over any number of Steps records of one process."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from tuimon.records import MORE_RANGES, Steps, bucket_length_ns
from tuimon.session.steps.held_steps import HeldSteps, side_work_ns

#: Most names of phases, and most paths of user ranges, that are summed up by themselves.
_PHASES = 32
_PATHS = 256
#: The slowest step of each of so many windows is kept, the latest ones.
_SLOWEST = 60


class SlowSteps:
    """The slowest step of each of the latest windows: its length and its side work, in ns, packed."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs = array("d")

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self._pairs[::2], self._pairs[1::2], strict=True)

    def add_window(self, record: Steps | HeldSteps) -> None:
        """Add that of a window, if it has one."""
        slowest = record.slowest
        if slowest is not None:
            self._extend((slowest.total_ns, side_work_ns(slowest)))

    def add_all(self, later: SlowSteps) -> None:
        """Add those of later windows."""
        self._extend(later._pairs)

    def _extend(self, pairs: Iterable[float]) -> None:
        self._pairs.extend(pairs)
        if len(self._pairs) > 2 * _SLOWEST:
            del self._pairs[: -2 * _SLOWEST]


class Totals(Struct):
    """Sums over any number of Steps records."""

    window_s: float = 0.0
    count: int = 0  # steps that the times are of (``Steps.usual``)
    timed: int = 0  # steps that were timed boundary by boundary
    total_ns: int = 0
    timed_ns: int = 0  # length of the steps that were timed, within 0.5 % where others were not
    eval_count: int = 0
    gc_ns: int | None = None  # None: not measured
    gc_count: int = 0
    gc_longest_ns: int = 0
    histogram: Counter[int] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    ranges: dict[str, tuple[int, int, str]] = field(default_factory=dict)  # path: count, total_ns, phase
    slowest: SlowSteps = field(default_factory=SlowSteps)

    def add_window(self, record: Steps | HeldSteps) -> None:
        """Add one window."""
        usual, total_ns = record.usual, record.total_ns
        self.window_s += max(0.0, record.window_s - record.slowed_ns / 1e9)
        self.count += usual
        timed = usual if record.timed is None else min(record.timed, usual)
        self.timed += timed
        lengths_ns = () if timed == usual else (bucket_length_ns(bucket) * steps for bucket, steps in record.histogram)
        self.timed_ns += total_ns if timed == usual else round(sum(lengths_ns))
        self.total_ns += total_ns
        self.eval_count += record.eval_count
        if record.gc_ns is not None:
            self.gc_ns = _sum(self.gc_ns, record.gc_ns)
        if record.gc_count or record.gc_longest_ns:
            self.gc_count += record.gc_count
            self.gc_longest_ns = max(self.gc_longest_ns, record.gc_longest_ns)
        histogram, phases = self.histogram, self.phases
        for bucket, steps in record.histogram:  # get and in: three times as fast as a Counter's default
            histogram[bucket] = histogram[bucket] + steps if bucket in histogram else steps
        for phase in record.phases:
            name = phase.name
            if name in phases:
                phases[name] += phase.total_ns
            elif len(phases) < _PHASES:
                phases[name] = phase.total_ns
        self.slowest.add_window(record)
        for r in record.ranges:
            self._add_range(r.path, r.count, r.total_ns, r.phase)

    def add_totals(self, other: Totals) -> None:
        """Add other sums."""
        self.window_s += other.window_s
        self.count += other.count
        self.timed += other.timed
        self.total_ns += other.total_ns
        self.timed_ns += other.timed_ns
        self.eval_count += other.eval_count
        self.gc_ns = _sum(self.gc_ns, other.gc_ns)
        self.gc_count += other.gc_count
        self.gc_longest_ns = max(self.gc_longest_ns, other.gc_longest_ns)
        self.histogram += other.histogram
        self.phases += other.phases
        self.slowest.add_all(other.slowest)
        for path, (count, total_ns, phase) in other.ranges.items():
            self._add_range(path, count, total_ns, phase)

    def _add_range(self, path: str, count: int, total_ns: int, phase: str) -> None:
        if path not in self.ranges and len(self.ranges) >= _PATHS:
            path = MORE_RANGES
        before = self.ranges.get(path, (0, 0, ""))
        self.ranges[path] = (before[0] + count, before[1] + total_ns, phase)

    def without_collections(self) -> Totals:
        """The same, without the garbage collector's pauses."""
        return replace(self, gc_ns=self.gc_ns and 0, gc_count=0, gc_longest_ns=0)

    def per_second(self) -> float | None:
        """Steps a second of wall time; None without steps. A step may have begun long before its window."""
        span_s = max(self.window_s, self.total_ns / 1e9)
        return self.count / span_s if self.count and span_s > 0 else None

    def quantile_ms(self, q: float) -> float | None:
        """The q-quantile (0..1) of step lengths in ms, within 0.5 %; None without steps."""
        total, seen = self.histogram.total(), 0
        for bucket, steps in sorted(self.histogram.items()):
            seen += steps
            if seen > q * total or seen == total:
                return bucket_length_ns(bucket) / 1e6
        return None


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
