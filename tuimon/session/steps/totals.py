"""What the steps of a span come to, by the names that rules and views use."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.records import BETWEEN, MORE_RANGES, RangeTime, Steps, bucket_length_ns
from tuimon.session.steps.stretch import PHASE_COLUMNS, StepStretch

#: Most paths of user ranges that are summed up by themselves.
_PATHS = 256
_SIZED, _SAMPLES, _TOKENS, _RANGES = -1, -2, -3, -4


class Rates(NamedTuple):
    """Samples and tokens a second; None where unknown."""

    samples: float | None = None
    tokens: float | None = None


class RatesOfRanks(NamedTuple):
    """The sums over so many ranks, as of ``t``."""

    t: float
    rates: Rates
    ranks: int


class Totals(Struct):
    """Sums over any number of windows of steps."""

    window_s: float = 0.0
    count: int = 0  # steps that the times are of (``Steps.usual``)
    timed: int = 0  # steps that were timed boundary by boundary
    total_ns: int = 0
    timed_ns: int = 0  # length of the steps that were timed, within 0.5 % where others were not
    eval_count: int = 0
    gc_ns: int | None = None  # None: not measured
    gc_count: int = 0
    gc_longest_ns: int = 0
    histogram: Mapping[int, int] = field(default_factory=dict)
    phases: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int, str]] = field(default_factory=dict)  # path: count, total_ns, phase
    sized: int = 0  # steps of windows in which the program passed samples or tokens to ``tuimon.step``: these
    samples: int | None = None
    tokens: int | None = None
    slowest: Sequence[tuple[float, float]] = ()  # of each of the latest windows: length and side work, in ns

    def per_second(self) -> float | None:
        """Steps a second of wall time; None without steps. A step may have begun long before its window."""
        span_s = max(self.window_s, self.total_ns / 1e9)
        return self.count / span_s if self.count and span_s > 0 else None

    def quantile_ms(self, q: float) -> float | None:
        """The q-quantile (0..1) of step lengths in ms, within 0.5 %; None without steps."""
        total, seen = sum(self.histogram.values()), 0
        for bucket, steps in sorted(self.histogram.items()):
            seen += steps
            if seen > q * total or seen == total:
                return bucket_length_ns(bucket) / 1e6
        return None


class StepCounts:
    """The lengths, sizes and user ranges of steps as counts by key, as a ``Series`` holds them.

    A key from 0 on is a bucket of the histogram, -1 to -3 are sizes; -4 and -5 are how often the first path of a range
    was seen and for how many ns, -6 and -7 the same of the second.
    """

    def __init__(self) -> None:
        self._paths: dict[str, tuple[int, str]] = {}  # key and phase of each

    def of(self, record: Steps) -> dict[int, int]:
        """Those of a window."""
        counts: dict[int, int] = dict(record.histogram)
        if record.samples is not None or record.tokens is not None:
            counts[_SIZED] = record.count
            for key, number in ((_SAMPLES, record.samples), (_TOKENS, record.tokens)):
                if number is not None:
                    counts[key] = number
        for each in record.ranges:
            key = self._key_of(each)
            counts[key] = counts.get(key, 0) + each.count
            counts[key - 1] = counts.get(key - 1, 0) + each.total_ns
        return counts

    def _key_of(self, found: RangeTime) -> int:
        path = found.path if found.path in self._paths or len(self._paths) < _PATHS else MORE_RANGES
        key, _ = self._paths.get(path, (_RANGES - 2 * len(self._paths), ""))
        self._paths[path] = key, found.phase
        return key

    def totals(self, sums: StepStretch | None, counts: Mapping[int, int], latest: Sequence[StepStretch]) -> Totals:
        """The sums of a span under their names; ``latest``: its last windows."""
        if sums is None:
            return Totals()
        phases = {name: int(getattr(sums, column)) for name, column in PHASE_COLUMNS.items()}
        return Totals(
            window_s=sums.span_s,
            count=int(sums.steps),
            timed=int(sums.timed),
            total_ns=int(sums.total_ns),
            timed_ns=int(sums.timed_ns),
            eval_count=int(sums.eval_count),
            gc_ns=int(sums.gc_ns) if sums.gc_windows else None,
            gc_count=int(sums.gc_count),
            gc_longest_ns=int(sums.gc_longest_ns),
            histogram={bucket: steps for bucket, steps in counts.items() if bucket >= 0},
            phases={name: ns for name, ns in phases.items() if ns},
            ranges={
                path: (counts[key], counts[key - 1], phase)
                for path, (key, phase) in self._paths.items()
                if key in counts
            },
            sized=counts.get(_SIZED, 0),
            samples=counts.get(_SAMPLES),
            tokens=counts.get(_TOKENS),
            slowest=[(row.slowest_ns, row.side_work_ns) for row in latest if row.slowest_ns],
        )


# -- single steps of a rank, to be held against the same steps of other ranks

#: The phases of ``SharedStep.parts_us``.
SHARED_PARTS = ("data", "forward", "backward", "optimizer", "other", BETWEEN)
#: The latest that are held of a rank: those of 16 s of a fast loop, and of all of the run as many to twice as many.
_SHARED = 64
#: A step, packed, in an eighth of the memory: its number, when it ended, and its phases in us, of which each has room
#: for 71 minutes.
_ROW = struct.Struct(f"=Qd{len(SHARED_PARTS)}I")
_MOST_US = (1 << 32) - 1


class SharedStep(Struct, frozen=True, gc=False):  # hundreds of ranks have them: not for the garbage collector
    """One step: its number, when it ended, and its phases."""

    index: int
    end_s: float
    parts_us: tuple[int, ...]  # of SHARED_PARTS


class SharedSteps:
    """The latest, and some of the whole run, evenly spread."""

    __slots__ = ("_latest", "_run", "_stride")

    def __init__(self) -> None:
        self._latest = bytearray()
        self._run = bytearray()
        self._stride = 1

    def add_steps(self, record: Steps) -> None:
        """Add those of a window."""
        if not record.rank_steps:
            return
        t, latest, run, stride = record.t, self._latest, self._run, self._stride
        for row in record.rank_steps:
            end_s = t - row.before_us / 1e6
            phases_us = row.data_us, row.forward_us, row.backward_us, row.optimizer_us, row.other_us, row.between_us
            step = _ROW.pack(row.index, end_s, *[us if us <= _MOST_US else _MOST_US for us in phases_us])
            latest += step
            if row.index % stride == 0:
                run += step
        if len(latest) > _SHARED * _ROW.size:
            del latest[: -_SHARED * _ROW.size]
        while len(self._run) > 2 * _SHARED * _ROW.size:
            self._stride *= 2
            rows = _ROW.iter_unpack(self._run)
            self._run = bytearray().join([_ROW.pack(*row) for row in rows if row[0] % self._stride == 0])

    def latest(self) -> Sequence[SharedStep]:
        """The latest of them."""
        return _steps_of(self._latest)

    def since(self, t: float) -> Sequence[SharedStep]:
        """The steps of the whole run that ended after a moment."""
        return [step for step in _steps_of(self._run) if step.end_s > t]


def _steps_of(packed: bytearray) -> list[SharedStep]:
    return [SharedStep(index, end_s, tuple(parts_us)) for index, end_s, *parts_us in _ROW.iter_unpack(packed)]
