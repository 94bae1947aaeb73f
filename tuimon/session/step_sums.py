"""The steps of a stretch of a run: sums, how they divide, and how often each length and user range came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tuimon.records import BETWEEN, MORE_RANGES, RangeTime, Steps, bucket_length_ns
from tuimon.session.rows import SteppingSpan
from tuimon.session.series import Series, first

#: The parts of a step, as lists of them are ordered.
STACKED = ("data", "forward", "backward", "optimizer", "other")
Parts = tuple[float, ...]  # one a STACKED, or one more for the time between


class StepStretch(NamedTuple):
    """The steps that ended in a stretch of a run; a row of a ``Series``."""

    begin_s: float = 0.0
    end_s: float = 0.0
    first_step: float = 0.0
    steps: float = 0.0  # that the times are of (``Steps.usual``)
    span_s: float = 0.0  # of wall time, without steps that a profiler or a stop held up, and without ``outside_s``
    total_ns: float = 0.0
    data_ns: float = 0.0
    forward_ns: float = 0.0
    backward_ns: float = 0.0
    optimizer_ns: float = 0.0
    other_ns: float = 0.0
    between_ns: float = 0.0  # which samples divide among the phases
    eval_ns: float = 0.0  # beside the steps
    waited_ns: float = 0.0  # of ``total_ns``, in which a computing thread waited for a core
    cpu_ns: float = 0.0  # that all threads of the process used meanwhile; 0: not measured
    busy_ns: float = 0.0  # of ``total_ns``, in which the thread that trains ran or wanted to; 0: not measured
    # A loop that waits for its workers goes at their pace, so it waits for data as long as they wait for a core.
    workers_waited_ns: float = 0.0
    eval_count: float = 0.0
    gc_ns: float = 0.0
    gc_windows: float = 0.0  # in which collections were measured
    gc_count: float = 0.0
    gc_longest_ns: float = 0.0
    outside_s: float = 0.0  # that the program was outside its loop, or stopped

    @property
    def phases_ns(self) -> dict[str, float]:
        """The time in each phase that markers show any of."""
        return {name: ns for name, column in PHASE_COLUMNS.items() if (ns := getattr(self, column))}

    @property
    def per_second(self) -> float | None:
        """Steps a second of wall time; None without steps. A step may have begun long before its window."""
        span_s = max(self.span_s, self.total_ns / 1e9)
        return self.steps / span_s if self.steps and span_s > 0 else None

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
    return Series(StepStretch, how={"first_step": first, "gc_longest_ns": max})


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


def stretch_of(record: Steps, on_cores: OnCores = OnCores()) -> StepStretch:  # noqa: B008  (immutable)
    """A window as a stretch."""
    phases_ns = dict.fromkeys(PHASE_COLUMNS, 0)
    for phase in record.phases:
        if phase.name in phases_ns:
            phases_ns[phase.name] += phase.total_ns
    usual, total_ns, outside_s = record.usual, record.total_ns, record.outside_s or 0.0
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
        eval_count=record.eval_count,
        gc_ns=record.gc_ns or 0,
        gc_windows=record.gc_ns is not None,
        gc_count=record.gc_count,
        gc_longest_ns=record.gc_longest_ns,
        outside_s=outside_s,
    )


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


#: The phases of ``SharedStep.parts_us``.
SHARED_PARTS = ("data", "forward", "backward", "optimizer", "other", BETWEEN)


class SharedStep(NamedTuple):
    """One step of a rank, to be held against the same step of other ranks."""

    number: float
    end_s: float
    data_us: float
    forward_us: float
    backward_us: float
    optimizer_us: float
    other_us: float
    between_us: float

    @property
    def parts_us(self) -> Parts:
        """Its phases, of SHARED_PARTS."""
        return self[2:]


#: Most paths of user ranges that are summed up by themselves.
_PATHS = 256
#: Keys of counts that are no lengths: of how many steps the program has passed samples or tokens, these, ranges.
_SIZED, _SAMPLES, _TOKENS, _RANGES = -1, -2, -3, -4


class Totals(NamedTuple):
    """The steps of a span."""

    sums: StepStretch = StepStretch()
    histogram: Mapping[int, int] = {}  # steps that were timed boundary by boundary, by the bucket of their length
    ranges: Mapping[str, tuple[int, int, str]] = {}  # path: count, total_ns, phase
    sized: int = 0  # steps of windows in which the program passed samples or tokens to ``tuimon.step``: these
    samples: int = 0
    tokens: int = 0

    @property
    def steps(self) -> int:
        """How many its times are of."""
        return int(self.sums.steps)

    @property
    def timed(self) -> int:
        """How many were timed boundary by boundary; the others were only counted."""
        return sum(self.histogram.values())

    @property
    def timed_s(self) -> float:
        """Length of these, within 0.5 % where others were only counted."""
        if self.timed == self.steps:
            return self.sums.total_ns / 1e9
        return sum(bucket_length_ns(bucket) * steps for bucket, steps in self.histogram.items()) / 1e9

    def quantile_ms(self, q: float) -> float | None:
        """The q-quantile (0..1) of step lengths in ms, within 0.5 %; None without steps."""
        total, seen = self.timed, 0
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
            counts |= {_SIZED: record.count, _SAMPLES: record.samples or 0, _TOKENS: record.tokens or 0}
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

    def totals(self, sums: StepStretch, counts: Mapping[int, int]) -> Totals:
        """The steps of a span."""
        known = self._paths.items()
        return Totals(
            sums,
            histogram={bucket: steps for bucket, steps in counts.items() if bucket >= 0},
            ranges={path: (counts[key], counts[key - 1], phase) for path, (key, phase) in known if key in counts},
            sized=counts.get(_SIZED, 0),
            samples=counts.get(_SAMPLES, 0),
            tokens=counts.get(_TOKENS, 0),
        )
