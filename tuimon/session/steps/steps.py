"""Steps and phases of one process, folded from Steps records."""

from __future__ import annotations

from msgspec import Struct

from tuimon.records import Steps
from tuimon.session.counter_means import SteppingSpan
from tuimon.session.rows import StepSummary
from tuimon.session.steps.course import StepCourse, stretch_of, without_end
from tuimon.session.steps.held_steps import HeldSteps, packed, unpacked
from tuimon.session.steps.history import StepHistory
from tuimon.session.steps.step_windows import (
    RecentSteps,
    stepping_spans,
    until_last_step,
    without_set_up,
    without_steps,
)
from tuimon.session.steps.totals import Totals
from tuimon.session.windows import Span

#: A first window whose steps are longer than those of the rest of the run by this factor is warm-up, and left out.
_WARMUP_RATIO = 1.5
#: The slowest of this many first steps is reported as the first slow one.
_FIRST_STEPS = 5


class LatestWindow(Struct, frozen=True, gc=False):
    """The data held of a process's latest window of steps."""

    t: float
    open_phase: str | None  # the phase that it was in at ``t``
    open_for_s: float | None
    tid: int | None  # of the thread that trains, where it is not the main one
    is_outside: bool  # at ``t`` the program had left its loop


class StepStats:
    """The steps of one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.history = StepHistory()
        self.total = 0
        self.dropped = 0
        self.backwards = 0
        self.updates = 0
        self.latest: LatestWindow | None = None
        self.first_slow_ms: float | None = None  # the slowest of the first five steps
        self.first_step_s: float | None = None  # ``t`` of the first window with a step
        self.begin_s: float | None = None  # when its loop began, once a step has ended
        self.first_batch_s = 0.0  # that the first step waited for its batch, if its phases are known
        self.outside_s = self.outside_since_step_s = 0.0  # between steps outside the loop, and after the latest step
        self.evaluated_s = self.evaluated_since_step_s = 0.0  # by markers, the same
        self._last_step_s = 0.0
        self._first_backward_s: float | None = None
        self.open_since_s: float | None = None  # latest window with a step; without, that of the first backward
        self.open_backwards = 0  # since then
        self.run = Totals()
        self.course = StepCourse()  # from its first whole step on
        self._since_step: Totals | None = None  # windows after the last one with a step, to one with a backward
        self._since_backward: Totals | None = None  # and those that follow
        self._first: HeldSteps | None = None  # first window with steps: perhaps warm-up
        self._latest_windows = RecentSteps()
        self._recent: Totals | None = None  # as of the latest record, once queried
        self._whole_run: Totals | None = None

    def share_room(self, processes: int) -> None:
        """So many processes share the room for histories."""
        self.history.share_room(processes)
        self.course.share_room(processes)

    def add_window(
        self,
        record: Steps,
        waited_ratio: float | None = None,
        workers_waited_ratio: float = 0.0,
        cpu_ratio: float | None = None,
    ) -> None:
        """Fold a window; in these shares (0..1) of it its own threads, and its workers, waited for a core.

        ``cpu_ratio``: cores that its own threads used.
        """
        self._recent = self._whole_run = None
        if self._first is None:
            record = without_set_up(record, self._note_begin(record))
        self.latest = LatestWindow(
            record.t,
            record.open_phase,
            record.open_for_s,
            record.tid,
            is_outside=bool(record.outside_s) and record.open_for_s is None,
        )
        on_cores = (waited_ratio or 0.0, cpu_ratio or 0.0)
        is_late = record.last_step_s is not None and self._first is not None
        for part in (until_last_step(record), without_steps(record)) if is_late else (record,):
            self._latest_windows.append(part)
        self.total = record.first_index + record.count
        self.dropped += record.dropped
        self.backwards += record.backwards
        self.updates += record.updates
        self._note_open_step(record)
        self._note_goodput(record)
        self.history.add_window(record, waited_ratio or 0.0, workers_waited_ratio)
        if record.count:
            self._last_step_s = record.t if record.last_step_s is None else record.last_step_s
        if self._first is not None or record.count:
            self.course.add_window(without_steps(record) if is_late else record, *on_cores)
        if record.slowest is not None and record.slowest.index < _FIRST_STEPS:
            self.first_slow_ms = max(self.first_slow_ms or 0.0, record.slowest.total_ns / 1e6)
        if self._first is None and record.count:
            self._first = unpacked(packed(record))
            self.first_step_s = record.t
        elif self._first is not None:
            self._fold_into_run(record, is_late=is_late)

    def _fold_into_run(self, record: Steps, *, is_late: bool) -> None:
        """Add a window to the run: the time from a step to the next belongs to it; how the loop winds down does not.

        ``is_late``: the last step of a loop without a DataLoader is only known to have ended when the process has; the
        windows since then have no part in it.
        """
        if is_late:
            self._join_since_step(None)
            self._since_backward = _joined(self._since_backward, _totals_of(without_steps(record)))
            self.run.add_window(until_last_step(record))
        elif record.count or record.eval_count:
            self._join_since_step(self._since_backward)
            self._since_backward = None
            self.run.add_window(record)
        elif record.backwards or record.updates:
            self._since_step = _joined(self._since_step, self._since_backward, _totals_of(record))
            self._since_backward = None
        else:
            self._since_backward = self._since_backward or Totals()
            self._since_backward.add_window(record)

    def _join_since_step(self, later: Totals | None) -> None:
        for totals in (self._since_step, later):
            if totals is not None:
                self.run.add_totals(totals)
        self._since_step = None

    def _note_goodput(self, record: Steps) -> None:
        """Note the first batch, evaluation and the time outside the loop; a later step shows that this is not over."""
        slowest = record.slowest
        if slowest is not None and slowest.index == 0:
            self.first_batch_s = sum(phase.total_ns for phase in slowest.phases if phase.name == "data") / 1e9
        if self._first is not None:
            self.outside_since_step_s += record.outside_s or 0.0
        if self._first is not None or record.count:
            self.evaluated_since_step_s += sum(phase.total_ns for phase in record.phases if phase.name == "eval") / 1e9
        if record.count and record.last_step_s is None:
            self.outside_s += self.outside_since_step_s
            self.evaluated_s += self.evaluated_since_step_s
            self.outside_since_step_s = self.evaluated_since_step_s = 0.0

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

    def recent(self) -> Totals:
        """Sums over the last 30 s, or over the last few steps where those are longer.

        Without the warm-up, and what is evaluated before the first step: it begins with imports and compilers too.
        """
        if self._recent is None:
            self._recent = self._recent_totals()
        return self._recent

    def _recent_totals(self) -> Totals:
        totals, since_step = Totals(), Totals()
        begun = False
        first, was_warmup = self._first, self._first_was_warmup()
        for record in self._latest_windows.records():
            if first is not None and (record.t < first.t or (was_warmup and record.t == first.t)):
                continue
            if record.count and not record.window_s:  # known late: the windows since it ended belong to no step
                totals.add_window(record)
            elif record.count > 0 or record.eval_count > 0:
                begun = True
                totals.add_totals(since_step)
                since_step = Totals()
                totals.add_window(record)
            elif begun:
                since_step.add_window(record)
        totals.add_totals(since_step.without_collections())  # of the step under way, if one is
        return totals

    def spans(self, *, whole: bool) -> list[SteppingSpan]:
        """The stretches that ``whole_run`` covers, or ``recent``."""
        recent = () if whole else self._latest_windows.records()
        stretches = self.course.stretches() if whole else without_end([stretch_of(record) for record in recent])
        return stepping_spans(stretches, self.steady_span().begin_s)

    def whole_run(self) -> Totals:
        """Sums over the run; the first window with steps is left out where it was warm-up."""
        if self._whole_run is None:
            self._whole_run = Totals()
            if self._first is not None and not self._first_was_warmup():
                self._whole_run.add_window(self._first)
            self._whole_run.add_totals(self.run)
        return self._whole_run

    def since_start(self) -> Totals:
        """Sums over every step since the marker stream began, warm-up and winding down too: they never fall."""
        totals = Totals()
        if self._first is not None:
            totals.add_window(self._first)
        totals.add_totals(self.run)
        return _joined(totals, self._since_step, self._since_backward)

    @property
    def last_step_s(self) -> float | None:
        """``t`` of the latest window in which a step ended."""
        return self._last_step_s if self._first is not None else None

    def steady_span(self) -> Span:
        """The span of ``whole_run``: from the first step on, or from the end of the warm-up, to the last step."""
        if self._first is None or self.begin_s is None:
            return Span()
        return Span(self._first.t if self._first_was_warmup() else self.begin_s, self._last_step_s)

    @property
    def steady_index(self) -> int:
        """The number of the first step that ``whole_run`` covers."""
        first = self._first
        return 0 if first is None else first.first_index + (first.count if self._first_was_warmup() else 0)

    def _first_was_warmup(self) -> bool:
        first = self._first
        if first is None or self.run.count < first.usual:
            return False
        if not first.usual or not self.run.count:
            return False
        return first.total_ns / first.usual > _WARMUP_RATIO * self.run.total_ns / self.run.count

    def summary(self, totals: Totals) -> StepSummary:
        """Rate and step times over ``totals``, and the phase the trainer is in."""
        latest = self.latest
        return StepSummary(
            total=self.total,
            per_second=totals.per_second(),
            median_ms=totals.quantile_ms(0.5),
            p95_ms=totals.quantile_ms(0.95),
            open_phase=latest.open_phase if latest else None,
            open_for_s=latest.open_for_s if latest else None,
            dropped=self.dropped,
            timed_ratio=totals.timed / totals.count if totals.count else 1.0,
        )


def _totals_of(record: Steps) -> Totals:
    totals = Totals()
    totals.add_window(record)
    return totals


def _joined(*parts: Totals | None) -> Totals:
    totals = Totals()
    for part in parts:
        if part is not None:
            totals.add_totals(part)
    return totals
