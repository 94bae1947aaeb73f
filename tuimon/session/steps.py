"""Steps and phases of one process, folded from Steps records."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec.structs import replace

from tuimon.records import Steps
from tuimon.session.rows import SteppingSpan, StepSummary
from tuimon.session.series import EVER, ROWS, WINDOW_S, Singles, Span
from tuimon.session.step_sums import (
    OnCores,
    SharedStep,
    StepCounts,
    StepStretch,
    Totals,
    step_series,
    stepping_spans,
    stretch_of,
    without_end,
)

#: A first window whose steps are longer than those of the rest of the run by this factor is warm-up, and left out.
_WARMUP_RATIO = 1.5
#: The slowest of this many first steps is reported as the first slow one.
_FIRST_STEPS = 5
#: The least number of windows with a step that the recent figures cover if steps are longer than 30 s.
_LEAST_WINDOWS = 3
#: Rows of each length that a process among many holds at least: ranks out of focus have windows of 4 s.
_LEAST_ROWS = 24
#: Single steps that are held of a rank: the latest, those of 16 s of a fast loop, and of the whole run.
_SHARED, _SHARED_OF_RUN = 64, 128


class StepStats:
    """The steps of one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._series = step_series()
        self._counts = StepCounts()
        self.total = 0
        self.dropped = 0
        self.backwards = 0
        self.updates = 0
        self.latest: Steps | None = None
        self.shared = Singles(SharedStep, _SHARED, _SHARED_OF_RUN)
        self.first_slow_ms: float | None = None  # the slowest of the first five steps
        self.first_step_s: float | None = None  # ``t`` of the first window with a step
        self.begin_s: float | None = None  # when its loop began, once a step has ended
        self.first_batch_s = 0.0  # that the first step waited for its batch, if its phases are known
        self._last_step_s = 0.0
        self._loop_end_s = 0.0  # of the latest window with a step or an evaluation
        self._first_backward_s: float | None = None
        self.open_since_s: float | None = None  # latest window with a step; without, that of the first backward
        self.open_backwards = 0  # since then
        self._first: StepStretch | None = None  # first window with steps: perhaps warm-up
        self._first_count = 0  # steps in it
        self._held: dict[Span, Totals] = {}  # as of the latest record, once queried
        self._has_warmup: bool | None = None  # the same

    def share_room(self, processes: int) -> None:
        """So many processes share the room for windows."""
        self._series.limit = ROWS if processes == 1 else max(_LEAST_ROWS, ROWS // processes)

    def add_window(self, record: Steps, on_cores: OnCores = OnCores()) -> None:  # noqa: B008  (immutable)
        """Fold a window."""
        self._held.clear()
        self._has_warmup = None
        if self._first is None:
            record = _without_set_up(record, self._note_begin(record))
        self.latest = record
        self.total = record.first_index + record.count
        self.dropped += record.dropped
        self.backwards += record.backwards
        self.updates += record.updates
        self._note_open_step(record)
        for step in record.rank_steps:
            phases_us = step.data_us, step.forward_us, step.backward_us, step.optimizer_us, step.other_us
            self.shared.append(SharedStep(step.index, record.t - step.before_us / 1e6, *phases_us, step.between_us))
        for part in _parts(record) if self._first is not None else (record,):
            self._series.append(stretch_of(part, on_cores), self._counts.of(part))
        if record.count:
            self._last_step_s = record.t if record.last_step_s is None else record.last_step_s
        if record.count or record.eval_count:
            self._loop_end_s = max(self._loop_end_s, self._last_step_s if record.count else record.t)
        slowest = record.slowest
        if slowest is not None and slowest.index < _FIRST_STEPS:
            self.first_slow_ms = max(self.first_slow_ms or 0.0, slowest.total_ns / 1e6)
            if slowest.index == 0:
                self.first_batch_s = sum(phase.total_ns for phase in slowest.phases if phase.name == "data") / 1e9
        if self._first is None and record.count:
            self._first, self._first_count = stretch_of(record), record.count
            self.first_step_s = record.t
            self._series.keep_apart(self._first.begin_s)
            self._series.keep_apart(self._first.end_s)

    def _note_begin(self, record: Steps) -> float:
        """When the loop began, by the windows up to the first with a step; before that window, its end.

        A log without these times holds it within a window; the first step is at most one step before those counted.
        """
        if self._first_backward_s is None and record.backwards:
            self._first_backward_s = (
                record.t - record.window_s if record.first_backward_s is None else record.first_backward_s
            )
        if not record.count:
            return record.t
        first_s, backward_s = record.first_step_s, self._first_backward_s
        if first_s is None:
            eval_ns = sum(phase.total_ns for phase in record.phases if phase.name == "eval")
            first_s = record.t - (record.total_ns * (1 + 1 / max(1, record.usual)) + eval_ns) / 1e9
            backward_s = None if backward_s is None else max(backward_s, first_s)
        self.begin_s = first_s if backward_s is None else min(first_s, backward_s)
        return self.begin_s

    def _note_open_step(self, record: Steps) -> None:
        if record.count:
            self.open_since_s, self.open_backwards = record.t, 0
            return
        self.open_backwards += record.backwards
        if self.open_since_s is None and record.backwards:
            self.open_since_s = record.t - record.window_s

    @property
    def trains(self) -> bool:
        """True if a backward or an update was seen."""
        return self.backwards > 0 or self.updates > 0

    @property
    def has_loop(self) -> bool:
        """True if it trains, or makes steps without that."""
        return self.trains or self.total > 0

    def begins_anew(self, record: Steps) -> bool:
        """True if the process begins to train in this window: what seemed to be steps was an evaluation."""
        return not self.trains and 0 == record.first_index < self.total

    @property
    def has_left_loop(self) -> bool:
        """True if the program was outside its loop at the end of the latest window."""
        return self.latest is not None and bool(self.latest.outside_s) and self.latest.open_for_s is None

    @property
    def was_stopped(self) -> bool:
        """True if a signal has stopped it for a part of the latest window."""
        return self.latest is not None and bool(self.latest.outside_s) and self.latest.open_for_s is not None

    def over(self, span: Span = EVER) -> Totals:
        """The steps of a span, to its last step or evaluation, without the warm-up.

        Of the last seconds alone, or the last few steps where those are longer: with the time since then, but a
        collection in the step under way is counted once that has ended.
        """
        if span.last_s == EVER.last_s:
            return self.totals(Span(self._run_begin_s(), self._loop_end_s)) if self._first is not None else Totals()
        columns = self._series.columns(self._last_span(span.last_s))
        begins_s = columns["begin_s"]
        with_any = map(max, columns["steps"], columns["eval_count"])
        begin_s = next((begin_s for begin_s, number in zip(begins_s, with_any, strict=True) if number), None)
        if begin_s is None:
            return Totals()
        totals = self.totals(Span(begin_s, self._loop_end_s))
        since_s = sum(s for begin_s, s in zip(begins_s, columns["span_s"], strict=True) if begin_s >= self._loop_end_s)
        return totals._replace(sums=totals.sums._replace(span_s=totals.sums.span_s + since_s))

    def _last_span(self, last_s: float) -> Span:
        """The last seconds, or since the last but two windows with a step."""
        span = Span(self._run_begin_s(), last_s=last_s)
        if sum(map(bool, self._series.columns(span)["steps"])) < _LEAST_WINDOWS:
            columns = self._series.columns(Span(span.begin_s))
            older = [begin_s for begin_s, steps in zip(columns["begin_s"], columns["steps"], strict=True) if steps]
            span = Span(older[-_LEAST_WINDOWS:][0] if older else span.begin_s)
        return span

    def steps_within(self, seconds: float) -> float:
        """How many steps it makes in a time, at most in one as long as its longest window: by the last 30 s."""
        rows = self._series.rows(self._last_span(WINDOW_S))
        lengths = [row.end_s - row.begin_s for row in rows]
        return sum(row.steps for row in rows) / sum(lengths) * min(max(seconds, 0.0), max(lengths)) if lengths else 0.0

    def has_stepped_since(self, t: float) -> bool:
        """True if a step ended in a window that began after a moment."""
        columns = self._series.columns(Span(t))
        return any(steps and begin_s >= t for begin_s, steps in zip(columns["begin_s"], columns["steps"], strict=True))

    def windows(self, last: int | None = None) -> list[StepStretch]:
        """Stretches of equal length, also those without a step; the ``last`` ones as they were recorded."""
        rows = self._series.even_rows() if last is None else self._series.rows(last=last)
        return [row for row in rows if row.end_s > row.begin_s]  # a step that is known late has no window of its own

    def stretches(self) -> list[StepStretch]:
        """The course of the run: stretches of equal length from the first to the last one with a step."""
        return without_end(self._series.even_rows(Span(self._first.begin_s))) if self._first is not None else []

    def spans(self, span: Span) -> list[SteppingSpan]:
        """When it made the steps that ``over`` covers."""
        is_ever = span.last_s == EVER.last_s
        stretches = self.stretches() if is_ever else without_end(self._series.rows(self._last_span(span.last_s)))
        return stepping_spans(stretches, self.steady_span().begin_s)

    def in_loop(self) -> StepStretch:
        """The sums from the first window with a step to the end of the last step."""
        first = self._first
        return (self._series.over(Span(first.begin_s, self._last_step_s)) if first else None) or StepStretch()

    def since_step(self) -> StepStretch:
        """The sums of the windows after the last step."""
        return self._series.over(Span(math.nextafter(self._last_step_s, math.inf))) or StepStretch()

    def since_start(self) -> Totals:
        """Every step since the marker stream began, warm-up and winding down too: the sums never fall."""
        return self.totals(Span(self._first.begin_s)) if self._first is not None else Totals()

    def totals(self, span: Span) -> Totals:
        """The steps of the windows of a span."""
        totals = self._held.get(span)
        if totals is None:
            sums, counts = self._series.over(span) or StepStretch(), self._series.counts(span)
            totals = self._held[span] = self._counts.totals(sums, counts)
        return totals

    @property
    def last_step_s(self) -> float | None:
        """``t`` of the latest window in which a step ended."""
        return self._last_step_s if self._first is not None else None

    def _run_begin_s(self) -> float:
        """When the windows begin that ``over`` covers."""
        if self._first is None:
            return Span().begin_s
        return self._first.end_s if self._first_was_warmup() else self._first.begin_s

    def steady_span(self) -> Span:
        """The span of ``over``: from the first step on, or from the end of the warm-up, to the last step."""
        if self._first is None or self.begin_s is None:
            return Span()
        return Span(self._first.end_s if self._first_was_warmup() else self.begin_s, self._last_step_s)

    @property
    def steady_index(self) -> int:
        """The number of the first step that ``over`` covers."""
        first = self._first
        return 0 if first is None else int(first.first_step) + (self._first_count if self._first_was_warmup() else 0)

    def _first_was_warmup(self) -> bool:
        if self._has_warmup is None:
            self._has_warmup = self._is_longer_than_later()
        return self._has_warmup

    def _is_longer_than_later(self) -> bool:
        """True if the first window's steps are longer than those of the rest of the run."""
        first = self._first
        later = self._series.over(Span(first.end_s, self._loop_end_s)) if first is not None and first.steps else None
        if first is None or later is None or later.steps < max(1, first.steps):
            return False
        return first.total_ns / first.steps > _WARMUP_RATIO * later.total_ns / later.steps

    def summary(self, totals: Totals) -> StepSummary:
        """Rate and step times over ``totals``, and the phase the trainer is in."""
        latest = self.latest
        return StepSummary(
            total=self.total,
            per_second=totals.sums.per_second,
            median_ms=totals.quantile_ms(0.5),
            p95_ms=totals.quantile_ms(0.95),
            open_phase=latest.open_phase if latest else None,
            open_for_s=latest.open_for_s if latest else None,
            dropped=self.dropped,
            timed_ratio=totals.timed / totals.steps if totals.steps else 1.0,
        )


def _parts(record: Steps) -> Iterator[Steps]:
    """A window; that of a step which is known late as the time until its end, and the time after it.

    The last step of a loop without a DataLoader is only known to have ended when the process has.
    """
    if record.last_step_s is None:
        yield record
        return
    until_s = max(0.0, record.window_s - max(0.0, record.t - record.last_step_s))
    collected = {"gc_ns": record.gc_ns and 0, "gc_count": 0, "gc_longest_ns": 0, "outside_s": None}
    yield replace(record, t=record.last_step_s, window_s=until_s, **({} if until_s else collected))
    yield replace(
        record,
        **{"window_s": record.window_s - until_s, "count": 0, "slowed": 0, "slowed_ns": 0, "total_ns": 0},
        **{"histogram": [], "phases": [], "ranges": [], "slowest": None, "eval_count": 0},
        **(collected if until_s else {}),
    )


def _without_set_up(record: Steps, begin_s: float) -> Steps:
    """The first window with steps, without what was before them: time, and collections of imports and set-up."""
    if record.gc_count:
        record = replace(record, gc_ns=record.gc_ns and 0, gc_count=0, gc_longest_ns=0)
    if record.first_step_s is not None and record.t - record.window_s < begin_s < record.t:
        record = replace(record, window_s=record.t - begin_s)
    return record
