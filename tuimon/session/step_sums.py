"""What the steps of a stretch of a run come to: sums, how they divide, and single steps that ranks share."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.records import BETWEEN, MORE_RANGES, RangeTime, SlowStep, Steps, bucket_length_ns
from tuimon.session.rows import SteppingSpan
from tuimon.session.series import Series, first

#: The parts of a step, as lists of them are ordered.
STACKED = ("data", "forward", "backward", "optimizer", "other")
Parts = tuple[float, ...]  # one a STACKED, or one more for the time between


class StepStretch(NamedTuple):
    """The steps that ended in a stretch of a run; a row of a ``Series``."""

    begin_s: float
    end_s: float
    first_step: float
    steps: float  # that the times are of (``Steps.usual``)
    span_s: float  # of wall time, without steps that a profiler or a stop held up, and without ``outside_s``
    total_ns: float
    data_ns: float
    forward_ns: float
    backward_ns: float
    optimizer_ns: float
    other_ns: float
    between_ns: float  # which samples divide among the phases
    eval_ns: float  # beside the steps
    waited_ns: float = 0.0  # of ``total_ns``, in which a computing thread waited for a core
    cpu_ns: float = 0.0  # that all threads of the process used meanwhile; 0: not measured
    busy_ns: float = 0.0  # of ``total_ns``, in which the thread that trains ran or wanted to; 0: not measured
    # A loop that waits for its workers goes at their pace, so it waits for data as long as they wait for a core.
    workers_waited_ns: float = 0.0
    timed: float = 0.0  # steps that were timed boundary by boundary
    timed_ns: float = 0.0  # length of these, within 0.5 % where others were not timed
    eval_count: float = 0.0
    gc_ns: float = 0.0
    gc_windows: float = 0.0  # in which collections were measured
    gc_count: float = 0.0
    gc_longest_ns: float = 0.0
    slowest_ns: float = 0.0  # length of the slowest step
    side_work_ns: float = 0.0  # how much of it was neither data nor a pass
    outside_s: float = 0.0  # that the program was outside its loop, or stopped

    @property
    def mean_ms(self) -> float | None:
        """The mean step; None where none ended."""
        return self.total_ns / self.steps / 1e6 if self.steps else None

    @property
    def work_ms(self) -> float | None:
        """``mean_ms`` less what threads and workers waited for a core: others may come and go there."""
        left_ns = self.total_ns - self.waited_ns - self.workers_waited_ns
        return max(0.0, left_ns) / self.steps / 1e6 if self.steps else None

    @property
    def marked_ms(self) -> Parts | None:
        """The mean step as markers cut it: STACKED without the time between, and that time."""
        if not self.steps:
            return None
        parts_ns = self.data_ns, self.forward_ns, self.backward_ns, self.optimizer_ns, self.other_ns, self.between_ns
        return tuple(ns / self.steps / 1e6 for ns in parts_ns)

    @property
    def worked_ms(self) -> Parts | None:
        """``marked_ms`` less what was waited for a core, from each part in proportion to its time."""
        marked_ms, left = self.marked_ms, 1.0
        if self.total_ns:
            left = max(0.0, 1.0 - (self.waited_ns + self.workers_waited_ns) / self.total_ns)
        return tuple(left * ms for ms in marked_ms) if marked_ms is not None else None

    def stacked_ms(self, between_parts: Sequence[float]) -> Parts | None:
        """The mean step by STACKED; ``between_parts``: how the time that markers cannot split is divided into it."""
        marked_ms = self.marked_ms
        if marked_ms is None:
            return None
        return tuple(ms + marked_ms[-1] * part for ms, part in zip(marked_ms, between_parts, strict=False))


def step_series() -> Series[StepStretch]:
    """An empty series of the steps of a process."""
    return Series(StepStretch, how={"first_step": first, "gc_longest_ns": max, "slowest_ns": max, "side_work_ns": max})


#: Neighbouring stretches as one.
joined = step_series().joined
#: The column of each phase.
PHASE_COLUMNS = {BETWEEN: "between_ns", **{name: f"{name}_ns" for name in (*STACKED, "eval")}}


class OnCores(NamedTuple):
    """What is known of the threads of a process and its workers in a window, as shares (0..1) of it."""

    waited: float = 0.0  # that its own waited for a core
    cpu: float = 0.0  # cores that its own used
    workers_waited: float = 0.0
    busy: float = 0.0  # that the thread that trains ran or wanted to


def stretch_of(record: Steps, timed_ns: float, on_cores: OnCores = OnCores()) -> StepStretch:  # noqa: B008  (immutable)
    """A window as a stretch; ``timed_ns``: the length of its timed steps."""
    phases_ns = dict.fromkeys(PHASE_COLUMNS, 0)
    for phase in record.phases:
        if phase.name in phases_ns:
            phases_ns[phase.name] += phase.total_ns
    usual, total_ns, slowest, outside_s = record.usual, record.total_ns, record.slowest, record.outside_s or 0.0
    return StepStretch(
        begin_s=record.t - record.window_s,
        end_s=record.t,
        first_step=record.first_index,
        steps=usual,
        span_s=max(0.0, record.window_s - record.slowed_ns / 1e9 - outside_s),
        total_ns=total_ns,
        **{PHASE_COLUMNS[name]: float(ns) for name, ns in phases_ns.items()},
        waited_ns=on_cores.waited * total_ns,
        cpu_ns=on_cores.cpu * total_ns,
        busy_ns=on_cores.busy * total_ns,
        workers_waited_ns=min(phases_ns["data"], on_cores.workers_waited * total_ns),
        timed=usual if record.timed is None else min(record.timed, usual),
        timed_ns=timed_ns,
        eval_count=record.eval_count,
        gc_ns=record.gc_ns or 0,
        gc_windows=record.gc_ns is not None,
        gc_count=record.gc_count,
        gc_longest_ns=record.gc_longest_ns,
        slowest_ns=slowest.total_ns if slowest is not None else 0,
        side_work_ns=_side_work_ns(slowest) if slowest is not None else 0,
        outside_s=outside_s,
    )


def _side_work_ns(step: SlowStep) -> int:
    return sum(phase.total_ns for phase in step.phases if phase.name == "other")


def without_end(stretches: list[StepStretch]) -> list[StepStretch]:
    """The stretches up to the last step; later ones are left out."""
    while stretches and not stretches[-1].steps:
        stretches.pop()
    return stretches


def stepping_spans(stretches: Sequence[StepStretch], begin_s: float) -> list[SteppingSpan]:
    """The stretches of time in which steps were made, from a moment on; those that follow each other are one.

    A step belongs to the window that it ended in, and may have begun before. Worked example: windows end at 11, 12 and
    13 s; in the last one a step of 1.8 s ended, in the others none. The steps took the time from 11.2 to 13 s.
    """
    found: list[SteppingSpan] = []
    stretches = [each for each in stretches if each.end_s > each.begin_s and each.steps and each.total_ns]
    for stretch in stretches:
        slowed_s = max(0.0, stretch.end_s - stretch.begin_s - stretch.span_s)
        taken_s = (stretch.total_ns + stretch.eval_ns) / 1e9 + slowed_s
        from_s = max(begin_s, min(stretch.begin_s, stretch.end_s - taken_s))
        from_s = max(from_s, found[-1].end_s) if found else from_s
        until_s = stretch.end_s
        if stretch is stretches[-1]:  # what follows its last step need not be one
            until_s = min(until_s, from_s + taken_s)
        if until_s <= from_s:
            continue
        step_s = stretch.total_ns / stretch.steps / 1e9
        is_whole = until_s - from_s <= taken_s + step_s  # what is left is of the step that follows
        ratio = min(1.0, stretch.total_ns / 1e9 / (taken_s if is_whole else until_s - from_s))
        if found and found[-1].end_s == from_s and found[-1].steps_ratio == ratio:
            from_s = found.pop().begin_s
        found.append(SteppingSpan(from_s, until_s, ratio))
    return found


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
