"""The steps of one process, folded from Steps records: sums over any span, their phases, and their times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from tuimon.bounds import HELD, has_room
from tuimon.records import BETWEEN, MORE_RANGES, PHASES, STEP_PHASES, Steps, bucket_length_ns
from tuimon.session.series import ROWS_EACH, WHOLE_RUN, WINDOW_S, KeyNumbers, Series, Span, ThinnedRows, first
from tuimon.threshold import LARGER


class SteppingSpan(NamedTuple):
    """A stretch of a run in which steps were made, in seconds of the records' clock."""

    begin_s: float
    end_s: float
    steps_ratio: float = 1.0  # share of it that the steps take; the rest is evaluation, or was held up by a profiler


class StepSummary(Struct, frozen=True, gc=False, omit_defaults=True):
    """Steps of one process; a fast loop times only some of them. None: not measured."""

    total: int = field(name="count")  # since the first marker
    median_ms: float | None
    p95_ms: float | None
    per_second: float | None
    dropped: int = field(name="dropped_markers")  # overwritten before tuimon read them
    # share of the steps that were timed, while the others were only counted; None: all were timed
    timed_ratio: float | None = field(name="timed_share", default=None)

    @property
    def estimated(self) -> bool:
        """True if ``per_second`` is estimated from stack samples (no markers); the rest is unknown."""
        return not self.total and self.per_second is not None


PhaseValues = tuple[float, ...]  # one for each of STEP_PHASES, and in some one more for the time between


class StepStretch(NamedTuple):
    """The steps that ended in a stretch of a run; a row of a ``Series``."""

    begin_s: float = 0.0
    end_s: float = 0.0
    first_step: float = 0.0
    steps: float = 0.0  # that the times cover (``Steps.usual``)
    span_s: float = 0.0  # of wall time, without steps that a profiler or a stop held up, and without ``outside_s``
    total_ns: float = 0.0
    data_ns: float = 0.0
    forward_ns: float = 0.0
    backward_ns: float = 0.0
    optimizer_ns: float = 0.0
    other_ns: float = 0.0
    between_ns: float = 0.0  # which samples divide among the phases
    eval_ns: float = 0.0  # outside the steps
    waited_ns: float = 0.0  # of ``total_ns``, in which a computing thread waited for a core
    cpu_ns: float = 0.0  # that all threads of the process used meanwhile; 0: not measured
    busy_ns: float = 0.0  # of ``total_ns``, in which the thread that trains ran or wanted to; 0: not measured
    # A loop that waits for its workers goes at their pace, so it waits for data as long as they wait for a core.
    workers_waited_ns: float = 0.0
    eval_count: float = 0.0
    gc_ns: float = 0.0
    gc_span_s: float = 0.0  # of ``span_s``, in which collections were measured
    gc_count: float = 0.0
    gc_longest_ns: float = 0.0
    outside_s: float = 0.0  # that the program was outside its loop, or stopped

    @property
    def phases_ns(self) -> dict[str, float]:
        """The time in each phase that markers show any of."""
        return {name: ns for name, column in PHASE_COLUMNS.items() if (ns := getattr(self, column))}

    @property
    def per_second(self) -> float | None:
        """Steps a second of wall time; None if there are no steps. A step may have begun long before its window."""
        span_s = max(self.span_s, self.total_ns / 1e9)
        return self.steps / span_s if self.steps and span_s > 0 else None

    @property
    def mean_ms(self) -> float | None:
        """The mean step; None if none ended."""
        return self.total_ns / self.steps / 1e6 if self.steps else None

    @property
    def work_ms(self) -> float | None:
        """``mean_ms`` without threads' and workers' waits for a core, because other programs come and go."""
        left_ns = self.total_ns - self.waited_ns - self.workers_waited_ns
        return max(0.0, left_ns) / self.steps / 1e6 if self.steps else None

    @property
    def marked_ms(self) -> PhaseValues | None:
        """The mean step as markers cut it: STEP_PHASES without the time between, and that time."""
        if not self.steps:
            return None
        parts_ns = self.data_ns, self.forward_ns, self.backward_ns, self.optimizer_ns, self.other_ns, self.between_ns
        return tuple(ns / self.steps / 1e6 for ns in parts_ns)

    @property
    def worked_ms(self) -> PhaseValues | None:
        """``marked_ms`` without waits for a core, which are subtracted from each part in proportion to its time."""
        marked_ms, left = self.marked_ms, 1.0
        if self.total_ns:
            left = max(0.0, 1.0 - (self.waited_ns + self.workers_waited_ns) / self.total_ns)
        return tuple(left * ms for ms in marked_ms) if marked_ms is not None else None

    def stacked_ms(self, between_parts: Sequence[float]) -> PhaseValues | None:
        """The mean step by STEP_PHASES; ``between_parts``: the division of the time that markers cannot split."""
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
PHASE_COLUMNS = {BETWEEN: "between_ns", **{name: f"{name}_ns" for name in PHASES}}


class OnCores(NamedTuple):
    """The use of cores by a process's threads and workers in a window, as shares (0..1) of the window."""

    waited: float = 0.0  # in which its own threads waited for a core
    cpu: float = 0.0  # cores that its own threads used
    workers_waited: float = 0.0
    busy: float = 0.0  # in which the thread that trains ran or wanted to


def _without_collections(record: Steps) -> Steps:
    """The window as if its collections had not been measured: they may be of imports and set-up."""
    return replace(record, gc_ns=None, gc_count=0, gc_longest_ns=0) if record.gc_count else record


def stretch_of(record: Steps, on_cores: OnCores = OnCores()) -> StepStretch:  # noqa: B008  (immutable)
    phases_ns = dict.fromkeys(PHASE_COLUMNS, 0)
    for phase in record.phases:
        if phase.name in phases_ns:
            phases_ns[phase.name] += phase.total_ns
    usual, total_ns, outside_s = record.usual, record.total_ns, record.outside_s or 0.0
    span_s = max(0.0, record.window_s - record.slowed_ns / 1e9 - outside_s)
    return StepStretch(
        begin_s=record.t - record.window_s,
        end_s=record.t,
        first_step=record.first_index,
        steps=usual,
        span_s=span_s,
        total_ns=total_ns,
        **{PHASE_COLUMNS[name]: float(ns) for name, ns in phases_ns.items()},
        waited_ns=on_cores.waited * total_ns,
        cpu_ns=on_cores.cpu * total_ns,
        busy_ns=on_cores.busy * total_ns,
        workers_waited_ns=min(phases_ns["data"], on_cores.workers_waited * total_ns),
        eval_count=record.eval_count,
        gc_ns=record.gc_ns or 0,
        gc_span_s=span_s if record.gc_ns is not None else 0.0,
        gc_count=record.gc_count,
        gc_longest_ns=record.gc_longest_ns,
        outside_s=outside_s,
    )


def stepping_spans(stretches: Sequence[StepStretch], begin_s: float) -> list[SteppingSpan]:
    """The stretches of time in which steps were made, from a moment on; stretches that meet are joined.

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
        if stretch is stretches[-1]:  # the time after its last step need not be a step
            until_s = min(until_s, from_s + taken_s)
        if until_s <= from_s:
            continue
        step_s = stretch.total_ns / stretch.steps / 1e9
        is_whole = until_s - from_s <= taken_s + step_s  # the rest belongs to the next step
        ratio = min(1.0, stretch.total_ns / 1e9 / (taken_s if is_whole else until_s - from_s))
        if found and found[-1].end_s == from_s and found[-1].steps_ratio == ratio:
            from_s = found.pop().begin_s
        found.append(SteppingSpan(from_s, until_s, ratio))
    return found


#: The phases of ``SharedStep.parts_us``.
SHARED_PARTS = (*STEP_PHASES, BETWEEN)


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
    def parts_us(self) -> PhaseValues:
        return self[2:]


class Totals(NamedTuple):
    """The steps of a span."""

    sums: StepStretch = StepStretch()
    histogram: Mapping[int, int] = {}  # steps that were timed boundary by boundary, by the bucket of their length
    ranges: Mapping[str, tuple[int, int, str]] = {}  # path: count, total_ns, phase
    sized: int = 0  # steps of windows in which the program passed samples or tokens to ``tuimon.step``
    samples: int = 0  # in those windows
    tokens: int = 0

    @property
    def steps(self) -> int:
        """The number of steps that its times cover."""
        return int(self.sums.steps)

    @property
    def timed(self) -> int:
        """How many were timed boundary by boundary; the others were only counted."""
        return sum(self.histogram.values())

    @property
    def timed_s(self) -> float:
        """Length of the timed steps, within 0.5 % if others were only counted."""
        if self.timed == self.steps:
            return self.sums.total_ns / 1e9
        return sum(bucket_length_ns(bucket) * steps for bucket, steps in self.histogram.items()) / 1e9

    def quantile_ms(self, q: float) -> float | None:
        """The q-quantile (0..1) of step lengths in ms, within 0.5 %; None if there are no steps."""
        total, seen = self.timed, 0
        for bucket, steps in sorted(self.histogram.items()):
            seen += steps
            if seen > q * total or seen == total:
                return bucket_length_ns(bucket) / 1e6
        return None


#: The least number of windows with a step that the recent figures cover if steps are longer than 30 s.
_MIN_WINDOWS = 3
#: Rows of each length that a process among many holds at least: ranks out of focus have windows of 4 s.
_MIN_ROWS = 24
#: Single steps that are held of a rank: the latest, those of 16 s of a fast loop, and of the whole run.
_SHARED, _SHARED_OF_RUN = 64, 128


class StepStats:
    """The steps of one process.

    The time that each method covers:

    ==========================  ==========================================================================
    ``over``                    from the end of the warm-up to the last step or evaluation; or the last
                                seconds, with the time since the last step
    ``spans``, ``steady_span``  from the end of the warm-up to the last step
    ``stretches``, ``in_loop``  from the first step to the last
    ``since_start``             from the first step to the latest window
    ``since_step``              from the last step to the latest window
    ``windows``                 all windows, those before the first step as well
    ==========================  ==========================================================================
    """

    def __init__(self) -> None:
        self._series = step_series()
        # by path of a range: its uses and ns; under None: steps with known samples and tokens, then samples and tokens
        self._ranges = KeyNumbers[str | None](3, HELD + 2)
        self._phases: dict[str, str] = {}  # of each path
        self.total = 0
        self.dropped = 0
        self.backwards = 0
        self.updates = 0
        self.latest: Steps | None = None
        self.shared = ThinnedRows(SharedStep, _SHARED, _SHARED_OF_RUN)
        self.first_slow_ms: float | None = None  # the slowest of the first five steps
        self.begin_s: float | None = None  # when its loop began, once a step has ended
        self.restarted_s = 0.0  # between the steps before and after it replaced itself (exec)
        self.first_batch_s = 0.0  # that the first step waited for its batch, if its phases are known
        self._last_step_s = 0.0
        self._loop_end_s = 0.0  # of the latest window with a step or an evaluation
        self._unused_s = 0.0  # of that window, which neither takes: a run that ends there spends it after its loop
        self._first_backward_s: float | None = None
        self.open_since_s: float | None = None  # the latest window with a step; before any, the first backward
        self.open_backwards = 0  # since that moment
        self._first: StepStretch | None = None  # first window with steps: perhaps warm-up
        self._first_is_partial = False  # its first step began before the first marker, so it is left out of all times
        self._over: dict[Span, Totals] = {}  # since the latest window: of many ranks, that is seldom

    def add_window(self, record: Steps, on_cores: OnCores = OnCores(), processes: int = 1) -> None:  # noqa: B008  (immutable)
        """Fold a window; ``processes``: how many share the room for windows."""
        self._series.limit = ROWS_EACH if processes == 1 else max(_MIN_ROWS, ROWS_EACH // processes)
        self._over.clear()
        is_first = self._first is None
        if is_first:
            record = self._without_set_up(record)
        elif record.first_backward_s is not None or record.first_step_s is not None:
            record = self._begun_again(record)
        self.latest = record
        self.total = record.first_index + record.count
        self.dropped += record.dropped
        self.backwards += record.backwards
        self.updates += record.updates
        if record.count:
            self.open_since_s, self.open_backwards = record.t, 0
            self._last_step_s = record.t if record.last_step_s is None else record.last_step_s
            self._loop_end_s = max(self._loop_end_s, self._last_step_s)
        else:
            if record.eval_count:
                self._loop_end_s = max(self._loop_end_s, record.t)
            self.open_backwards += record.backwards
            if self.open_since_s is None and record.backwards:
                self.open_since_s = record.t - record.window_s
        for step in record.rank_steps:
            phases_us = step.data_us, step.forward_us, step.backward_us, step.optimizer_us, step.other_us
            self.shared.append(SharedStep(step.index, record.t - step.before_us / 1e6, *phases_us, step.between_us))
        for part in (record,) if is_first else _parts(record):
            counts = dict(part.histogram)
            counts.update((~number, count) for number, count in self._ranges.counts(self._ranges_in(part)).items())
            stretch = stretch_of(part, on_cores)
            self._series.append(stretch, counts)
            if stretch.steps or stretch.eval_count:  # a step that is known late took time of an earlier window
                span_s = stretch.span_s if stretch.end_s >= self._loop_end_s else self._unused_s
                self._unused_s = max(0.0, span_s - (stretch.total_ns + stretch.eval_ns) / 1e9)
        if is_first and record.count:
            self._first, self._first_is_partial = stretch_of(record), record.slowed > 0
            self._series.keep_apart(min(self.begin_s or math.inf, self._first.begin_s))
            self._series.keep_apart(self._first.begin_s)
            self._series.keep_apart(self._first.end_s)
        slowest = record.slowest
        if slowest is not None and slowest.index < 5:  # one of the first steps
            self.first_slow_ms = max(self.first_slow_ms or 0.0, slowest.total_ns / 1e6)
            if slowest.index == 0:
                self.first_batch_s = sum(phase.total_ns for phase in slowest.phases if phase.name == "data") / 1e9

    def _ranges_in(self, record: Steps) -> Iterator[tuple[str | None, int, int, int]]:
        """Path, uses, ns and 0 of each user range; and None, steps, samples and tokens if the program passes these."""
        if record.samples is not None or record.tokens is not None:
            yield None, record.count, record.samples or 0, record.tokens or 0
        for each in record.ranges:
            path = each.path if has_room(self._phases, each.path) else MORE_RANGES
            self._phases[path] = each.phase
            yield path, each.count, each.total_ns, 0

    def _without_set_up(self, record: Steps) -> Steps:
        """A window up to the first one with a step, without the time before the loop and the collections of the set-up.

        In a log without these times the loop began inside the window, at most one step before those that it counts.
        """
        record = _without_collections(record)
        if self._first_backward_s is None and record.backwards:
            self._first_backward_s = (
                record.t - record.window_s if record.first_backward_s is None else record.first_backward_s
            )
        if not record.count:
            return record
        first_s, backward_s = record.first_step_s, self._first_backward_s
        if first_s is None:
            eval_ns = sum(phase.total_ns for phase in record.phases if phase.name == "eval")
            first_s = record.t - (record.total_ns * (1 + 1 / max(1, record.usual)) + eval_ns) / 1e9
            backward_s = None if backward_s is None else max(backward_s, first_s)
        self.begin_s = first_s if backward_s is None else min(first_s, backward_s)
        if record.first_step_s is not None and record.t - record.window_s < self.begin_s < record.t:
            record = replace(record, window_s=record.t - self.begin_s)
        return record

    def _begun_again(self, record: Steps) -> Steps:
        """A window in which a process that has replaced itself trains again, without collections of its set-up."""
        if record.first_step_s is not None:
            self.restarted_s += max(0.0, record.first_step_s - self._last_step_s)
        return _without_collections(record)

    @property
    def trains(self) -> bool:
        return self.backwards > 0 or self.updates > 0

    @property
    def has_loop(self) -> bool:
        """True if the process trains, or makes steps without training."""
        return self.trains or self.total > 0

    def begins_anew(self, record: Steps) -> bool:
        """True if the process begins to train in this window, so that its earlier steps were an evaluation."""
        return not self.trains and 0 == record.first_index < self.total

    @property
    def has_left_loop(self) -> bool:
        """True if the program was outside its loop at the end of the latest window."""
        return self.latest is not None and bool(self.latest.outside_s) and self.latest.open_for_s is None

    @property
    def was_stopped(self) -> bool:
        """True if a signal has stopped it for a part of the latest window."""
        return self.latest is not None and bool(self.latest.outside_s) and self.latest.open_for_s is not None

    def over(self, span: Span = WHOLE_RUN) -> Totals:
        """The steps of a span, to its last step or evaluation, without the warm-up.

        The last seconds, or the last few steps if these take longer, include the time since the last step; but a
        garbage collection in the step under way is counted once that step has ended.
        """
        if span not in self._over:
            self._over[span] = self._totals_over(span)
        return self._over[span]

    def _totals_over(self, span: Span) -> Totals:
        if span.last_s == WHOLE_RUN.last_s:
            totals = self.totals(Span(self._run_begin_s(), self._loop_end_s)) if self._first is not None else Totals()
            span_s, gc_span_s = (max(0.0, s - self._unused_s) for s in (totals.sums.span_s, totals.sums.gc_span_s))
            return totals._replace(sums=totals.sums._replace(span_s=span_s, gc_span_s=gc_span_s))
        columns = self._series.columns(self._last_span(span.last_s), ("begin_s", "span_s", "steps", "eval_count"))
        rows = [*zip(*columns.values(), strict=True)]  # columns alone: each rank's are read once a second
        begin_s = next((begin_s for begin_s, _, steps, evals in rows if steps or evals), None)
        if begin_s is None:
            return Totals()
        totals = self.totals(Span(begin_s, self._loop_end_s))
        since_s = sum(span_s for begin_s, span_s, *_ in rows if begin_s >= self._loop_end_s)
        return totals._replace(sums=totals.sums._replace(span_s=totals.sums.span_s + since_s))

    def _last_span(self, last_s: float) -> Span:
        """The last ``last_s`` seconds; further back if they hold fewer than three windows with a step."""
        span = Span(self._run_begin_s(), last_s=last_s)
        if sum(map(bool, self._series.columns(span, ["steps"])["steps"])) < _MIN_WINDOWS:
            columns = self._series.columns(Span(span.begin_s), ("begin_s", "steps"))
            older = [begin_s for begin_s, steps in zip(columns["begin_s"], columns["steps"], strict=True) if steps]
            span = Span(older[-_MIN_WINDOWS:][0] if older else span.begin_s)
        return span

    def steps_within(self, seconds: float) -> float:
        """The steps to expect in ``seconds`` at the pace of the last 30 s, at most as many as in its longest window."""
        rows = self._series.rows(self._last_span(WINDOW_S))
        lengths = [row.end_s - row.begin_s for row in rows]
        return sum(row.steps for row in rows) / sum(lengths) * min(max(seconds, 0.0), max(lengths)) if lengths else 0.0

    def has_stepped_since(self, t: float) -> bool:
        """True if a step ended in a window that began after a moment."""
        return any(row.steps and row.begin_s >= t for row in self._series.rows(Span(t)))

    def windows(self, last: int | None = None) -> list[StepStretch]:
        """Stretches of equal length, also those without a step; the ``last`` ones as they were recorded."""
        rows = self._series.even_rows() if last is None else self._series.rows(last=last)
        return [row for row in rows if row.end_s > row.begin_s]  # a step that is known late has no window of its own

    def stretches(self) -> list[StepStretch]:
        """The course of the run: stretches of equal length from the first to the last one with a step."""
        found = self._series.even_rows(Span(self._first.begin_s)) if self._first is not None else []
        while found and not found[-1].steps:
            found.pop()
        return found

    def spans(self, span: Span) -> list[SteppingSpan]:
        """When it made the steps that ``over`` covers."""
        is_ever = span.last_s == WHOLE_RUN.last_s
        stretches = self.stretches() if is_ever else self._series.rows(self._last_span(span.last_s))
        return stepping_spans(stretches, self.steady_span().begin_s)

    def in_loop(self) -> StepStretch:
        """The sums from the first window with a step to the end of the last step."""
        first = self._first
        return (self._series.over(Span(first.begin_s, self._last_step_s)) if first else None) or StepStretch()

    def since_step(self) -> StepStretch:
        """The sums of the windows after the last step."""
        return self._series.over(Span(math.nextafter(self._last_step_s, math.inf))) or StepStretch()

    def since_start(self) -> Totals:
        """Every step since the marker stream began: the sums never fall, as a Prometheus counter requires."""
        return self.totals(Span(self._first.begin_s)) if self._first is not None else Totals()

    def totals(self, span: Span) -> Totals:
        counts = self._series.counts(span)
        ranges = self._ranges.figures({~key: count for key, count in counts.items() if key < 0})
        return Totals(
            self._series.over(span) or StepStretch(),
            {bucket: steps for bucket, steps in counts.items() if bucket >= 0},
            {path: (n, ns, self._phases[path]) for path, (n, ns, _) in ranges.items() if path is not None},
            *ranges.get(None, ()),
        )

    @property
    def first_step_s(self) -> float | None:
        """``t`` of the first window with a step."""
        return self._first.end_s if self._first is not None else None

    @property
    def last_step_s(self) -> float | None:
        """``t`` of the latest window in which a step ended."""
        return self._last_step_s if self._first is not None else None

    def steady_span(self) -> Span:
        """The span of ``over``: from the first step on, or from the end of the warm-up, to the last step."""
        if self._first is None or self.begin_s is None:
            return Span()
        begin_s = max(self.begin_s, self._first.begin_s) if self._first_is_partial else self.begin_s
        return Span(self._first.end_s if self._first_was_warmup() else begin_s, self._last_step_s)

    def _run_begin_s(self) -> float:
        """When the windows of ``over`` begin: with the loop, whose first steps may be known some windows late."""
        if self._first is None or self.begin_s is None:
            return Span().begin_s
        if self._first_was_warmup():
            return self._first.end_s
        return self._first.begin_s if self._first_is_partial else min(self.begin_s, self._first.begin_s)

    def _first_was_warmup(self) -> bool:
        """True if the first window's steps are longer than those of the rest of the run."""
        first = self._first
        later = self._series.over(Span(first.end_s, self._loop_end_s)) if first is not None and first.steps else None
        if first is None or later is None or later.steps < max(1, first.steps):
            return False
        return first.total_ns / first.steps > LARGER * later.total_ns / later.steps

    def summary(self, totals: Totals) -> StepSummary:
        """Rate and step times over ``totals``."""
        return StepSummary(
            total=self.total,
            median_ms=totals.quantile_ms(0.5),
            p95_ms=totals.quantile_ms(0.95),
            per_second=totals.sums.per_second,
            dropped=self.dropped,
            timed_ratio=totals.timed / totals.steps if totals.timed < totals.steps else None,
        )


def _parts(record: Steps) -> Iterator[Steps]:
    """The record of a window; two if its step becomes known late: until that step ended, and from then on.

    The last step of a loop without a DataLoader is only known to have ended when the process has.
    """
    if record.last_step_s is None:
        yield record
        return
    until_s = max(0.0, record.window_s - max(0.0, record.t - record.last_step_s))
    without_gc = replace(record, gc_ns=record.gc_ns and 0, gc_count=0, gc_longest_ns=0, outside_s=None)
    before, after = (record, without_gc) if until_s else (without_gc, record)
    yield replace(before, t=record.last_step_s, window_s=until_s)
    yield replace(
        after,
        window_s=record.window_s - until_s,
        count=0,
        slowed=0,
        slowed_ns=0,
        total_ns=0,
        histogram=[],
        phases=[],
        ranges=[],
        slowest=None,
        eval_count=0,
    )
