"""Steps and phases of one process, folded from Steps records."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import structs

from tuimon.records import BETWEEN, PHASES, Steps
from tuimon.session.course import StepCourse, StepStretch, stretch_of, without_end
from tuimon.session.gpu.gpu_time import GpuShare, GpuShares
from tuimon.session.rows import PhaseRow, PhaseTable, RangeRow, StepSummary
from tuimon.session.steps.split_shares import SplitShares
from tuimon.session.steps.totals import Totals
from tuimon.session.windows import Span, Window, new_history

#: The parts of a step, as the history of phases lists them.
STACKED = ("data", "forward", "backward", "optimizer", "other")
#: A row of the history of phases, packed: 64 trainers hold half an hour each. After STACKED: between, and waits for a
#: core, in ms; when the window began, and its first step.
_ROW = struct.Struct(f"{len(STACKED) + 4}d")
_BETWEEN, _WAITED, _BEGIN_S, _FIRST_STEP = range(len(STACKED), len(STACKED) + 4)
_PLACES = {name: place for place, name in enumerate((*STACKED, BETWEEN))}
#: Where steps are longer than the window: how many records with a step the recent figures cover at least.
_LEAST_RECORDS = 3
#: A first window whose steps are longer than those of the rest of the run by this factor is warm-up, and left out.
_WARMUP_RATIO = 1.5
#: The slowest of this many first steps is reported as the first slow one.
_FIRST_STEPS = 5


class WindowBegin(NamedTuple):
    """When a window began, and its first step."""

    begin_s: float
    step: int


class StepStats:
    """The steps of one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.history: deque[float | None] = new_history()  # mean ms of a window's steps
        self._phase_history: deque[bytes | None] = new_history()  # a _ROW of each window with a step
        self.total = 0
        self.dropped = 0
        self.backwards = 0
        self.updates = 0
        self.latest: Steps | None = None
        self.first_slow_ms: float | None = None  # the slowest of the first five steps
        self.first_step_s: float | None = None  # ``t`` of the first window with a step
        self.begin_s: float | None = None  # when its loop began, once a step has ended
        self._last_step_s = 0.0
        self._first_backward_s: float | None = None
        self.open_since_s: float | None = None  # latest window with a step; without, that of the first backward
        self.open_backwards = 0  # since then
        self.run = Totals()
        self.course = StepCourse()  # from its first whole step on
        self._since_step: Totals | None = None  # windows after the last one with a step
        self._first: Steps | None = None  # first window with steps: perhaps warm-up
        self._window: Window[Steps] = Window(limit=600)
        self._with_steps: deque[Steps] = deque(maxlen=_LEAST_RECORDS)
        self._recent: Totals | None = None  # as of the latest record, once queried
        self._whole_run: Totals | None = None

    def add_window(self, record: Steps, waited_ratio: float | None = None, workers_waited_ratio: float = 0.0) -> None:
        """Fold a window; in these shares (0..1) of it its own threads, and its workers, waited for a core."""
        self._recent = self._whole_run = None
        if self._first is None:
            record = _without_set_up(record, self._note_begin(record))
        self.latest = record
        self._window.append(record)
        self.total = record.first_index + record.count
        self.dropped += record.dropped
        self.backwards += record.backwards
        self.updates += record.updates
        self._note_open_step(record)
        usual = record.usual
        self.history.append(record.total_ns / usual / 1e6 if usual else None)
        self._phase_history.append(_stacked(record, waited_ratio or 0.0, workers_waited_ratio))
        if usual:
            self._with_steps.append(record)
        if record.count:
            self._last_step_s = record.t
        if self._first is not None or record.count:
            self.course.add_window(record, waited_ratio or 0.0)
        if record.slowest is not None and record.slowest.index < _FIRST_STEPS:
            self.first_slow_ms = max(self.first_slow_ms or 0.0, record.slowest.total_ns / 1e6)
        if self._first is None and record.count:
            self._first = record
            self.first_step_s = record.t
        elif self._first is not None and (record.count or record.eval_count):
            if self._since_step is not None:
                self.run.add_totals(self._since_step)
                self._since_step = None
            self.run.add_window(record)
        elif self._first is not None:
            self._since_step = self._since_step or Totals()
            self._since_step.add_window(record)  # how the run winds down, if no other step follows

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
        """Whether a backward or an update was seen."""
        return self.backwards > 0 or self.updates > 0

    def recent(self) -> Totals:
        """Sums over the last 30 s, or over the last few steps where those are longer; without the warm-up."""
        if self._recent is None:
            self._recent = self._recent_totals()
        return self._recent

    def _recent_totals(self) -> Totals:
        records: Iterable[Steps] = self._window.records
        if sum(1 for r in self._window.records if r.usual) < len(self._with_steps):
            oldest = self._with_steps[0].t
            records = [*(r for r in self._with_steps if r.t < self._window.records[0].t), *self._window.records]
            records = [r for r in records if r.t >= oldest]
        totals = Totals()
        begun = False
        warmup = self._first if self._first_was_warmup() else None
        for record in records:
            if record is warmup:
                continue
            begun = begun or record.count > 0 or record.eval_count > 0
            if begun:
                totals.add_window(record)
        return totals

    def recent_stretches(self, since_s: float) -> list[StepStretch]:
        """The windows of the last 30 s that began since a moment."""
        recent = (record for record in self._window.records if record.t - record.window_s >= since_s)
        return without_end([stretch_of(record) for record in recent])

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
        if self._since_step is not None:
            totals.add_totals(self._since_step)
        return totals

    @property
    def last_step_s(self) -> float | None:
        """``t`` of the latest window in which a step ended."""
        return self._last_step_s if self._first is not None else None

    def steady_span(self) -> Span:
        """What ``whole_run`` covers: from the first step on, or from the end of the warm-up, to the last step."""
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

    def phase_history(self, split: SplitShares | None, last: int) -> list[tuple[float, ...] | None]:
        """Mean steps of the ``last`` windows, split into STACKED, in ms; ``between`` is divided as in ``table``."""
        parts = self.between_parts(split)
        rows = list(self._phase_history)[max(0, len(self._phase_history) - last) :]
        return [None if row is None else _split(_ROW.unpack(row), parts) for row in rows]

    def between_parts(self, split: SplitShares | None) -> list[float]:
        """How ``between`` is divided into STACKED."""
        shares = {"forward": 1.0} if split is None else split.with_optimizer(self.recent()).shares
        return [shares.get(name, 0.0) for name in STACKED]

    def work_history(self) -> list[float | None]:
        """``history`` less what its threads and workers waited for a core: others may come and go there."""
        rows = zip(self.history, self._phase_history, strict=True)
        return [None if ms is None or row is None else max(0.0, ms - _ROW.unpack(row)[_WAITED]) for ms, row in rows]

    def begin_of(self, window: int) -> WindowBegin | None:
        """Of a window of ``history``; None without a step."""
        row = self._phase_history[window]
        return WindowBegin(_ROW.unpack(row)[_BEGIN_S], int(_ROW.unpack(row)[_FIRST_STEP])) if row is not None else None

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

    def table(self, totals: Totals, split: SplitShares | None, gpu: GpuShares | None = None) -> PhaseTable | None:
        """The phase breakdown; ``between`` is divided by ``split``, or counted as forward without samples.

        ``gpu``: shares of the GPU's time in the steps that were timed, here applied to the mean of all steps.
        """
        if not totals.count or totals.total_ns <= 0:
            return None
        measured = {name: ns for name, ns in totals.phases.items() if name not in (BETWEEN, "eval")}
        between_ns = totals.phases.get(BETWEEN, 0)
        if split is None or not split.samples:
            split = SplitShares({"forward": 1.0}, 0)
        split = split.with_optimizer(totals)
        whole_ns = sum(measured.values()) + between_ns
        if not whole_ns:
            return None
        rows = []
        for name in PHASES:
            if name == "eval":
                rows.extend(_eval_row(totals))
                continue
            part = split.shares.get(name, 0.0)
            ns = measured.get(name, 0) + between_ns * part
            estimated = between_ns * max(part, split.unsure_of(name)) > 0.01 * whole_ns
            error = split.error(name) * between_ns / whole_ns if estimated else None
            on_gpu = _gpu_ms(gpu.of(name) if gpu else None, whole_ns / totals.count / 1e6)
            rows.append(PhaseRow(name, ns / whole_ns, ns / totals.count / 1e6, estimated, error, *on_gpu))
        return PhaseTable(self.pid, totals.window_s, totals.count, False, tuple(rows), _range_rows(totals))


def _without_set_up(record: Steps, begin_s: float) -> Steps:
    """The first window with steps, without what was before them: time, and collections of imports and set-up."""
    if record.gc_count:
        record = structs.replace(record, gc_ns=record.gc_ns and 0, gc_count=0, gc_longest_ns=0)
    if record.first_step_s is not None and record.t - record.window_s < begin_s < record.t:
        record = structs.replace(record, window_s=record.t - begin_s)
    return record


def _gpu_ms(share: GpuShare | None, step_ms: float) -> tuple[float | None, float | None, float | None]:
    """Of a step of ``step_ms``: ms on the GPU, of that idle, and maybe idle as well."""
    if share is None:
        return None, None, None
    return share.span * step_ms, share.idle * step_ms, share.maybe_idle * step_ms


def _split(row: tuple[float, ...], parts: list[float]) -> tuple[float, ...]:
    """STACKED, each with its part of the time between."""
    return tuple(ms + row[_BETWEEN] * part for ms, part in zip(row, parts, strict=False))


def _stacked(record: Steps, waited_ratio: float, workers_waited_ratio: float) -> bytes | None:
    """A window's mean step as a ``_ROW``; None without a step.

    A loop that waits for its workers goes at their pace: what they wait for a core makes it wait as long for its data.
    """
    usual = record.usual
    if not usual:
        return None
    parts = [0.0] * _BEGIN_S
    for phase in record.phases:
        place = _PLACES.get(phase.name)
        if place is not None:
            parts[place] = phase.total_ns / usual / 1e6
    data_ns = next((phase.total_ns for phase in record.phases if phase.name == "data"), 0)
    waited_ns = waited_ratio * record.total_ns + min(data_ns, workers_waited_ratio * record.total_ns)
    parts[_WAITED] = int(waited_ns) / usual / 1e6
    return _ROW.pack(*parts, record.t - record.window_s, float(record.first_index))


def _eval_row(totals: Totals) -> list[PhaseRow]:
    eval_ns = totals.phases.get("eval", 0)
    if not eval_ns:
        return []
    share = eval_ns / (totals.window_s * 1e9) if totals.window_s else 0.0
    return [PhaseRow("eval", min(1.0, share), eval_ns / max(1, totals.eval_count) / 1e6)]


def _range_rows(totals: Totals) -> tuple[RangeRow, ...]:
    rows = []
    for path, (count, total_ns, phase) in sorted(totals.ranges.items()):
        rows.append(
            RangeRow(
                path=path,
                name=path.rpartition("/")[2],
                depth=path.count("/"),
                phase=phase,
                per_step=count / totals.count,
                ms_per_step=total_ns / totals.count / 1e6,
                share=total_ns / totals.total_ns,
            )
        )
    return tuple(rows)
