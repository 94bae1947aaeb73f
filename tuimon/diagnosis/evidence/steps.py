"""Steps and phases of one process, as the rules read them."""

from __future__ import annotations

import math
from functools import cached_property

from msgspec import Struct

from tuimon.diagnosis.threshold import Threshold
from tuimon.session.phase_table import PhaseRow, PhaseTable
from tuimon.session.session import SessionView, once
from tuimon.session.steps import Totals

FIRST_STEPS = Threshold(
    3, "steps until which all figures are those of the start", "our choice: the fewest steps that have a median"
)
SLOW_RATIO = Threshold(
    3.0,
    "times the usual that a step, its side work or a batch takes to be an exception: compilation and caches",
    "measured in tests/scenarios: without warm-up the slowest of the first steps takes 1.4 to 2.4 medians (healthy_gan,"
    " healthy_two_trainings), with it 4 to 8 (healthy_lbfgs, healthy_trainer)",
)


class StepEvidence(Struct, frozen=True, dict=True):
    """The steps of a process: in the whole run, in the evidence's span, and at the beginning; none without markers."""

    pid: int
    _view: SessionView
    totals: Totals  # over the span
    are_marked: bool = False
    total: int = 0  # since the marker stream began
    backwards: int = 0  # backward passes since then
    updates: int = 0  # runs of optimizer steps since then
    open_phase: str | None = None  # the phase that the training process is in now
    open_for_s: float | None = None
    first_step_s: float | None = None  # end of the first window with a step
    first_slowest_ms: float | None = None  # the slowest of the first five steps

    @property
    def has_ended(self) -> bool:
        """True if a whole step has ended, as markers or samples show."""
        return self.total > 0 if self.are_marked else self.phases is not None

    @cached_property
    def median_ms(self) -> float | None:
        """The median step of the span; None without markers."""
        return self.totals.quantile_ms(0.5)

    @property
    def collecting(self) -> float | None:
        """Share of the time in garbage collections of 0.5 ms and more; None if they are not reported."""
        sums = self.totals.sums
        return sums.gc_ns / 1e9 / (sums.span_s or math.inf) if sums.gc_windows else None

    @cached_property
    def phases(self) -> PhaseTable | None:
        """The phases of a step, if need be by samples alone; None before the first step."""
        return self._view.phases(self.pid)

    def phase(self, name: str) -> PhaseRow | None:
        """The row of one phase; None if there is none."""
        return next((row for row in self.phases.rows if row.name == name), None) if self.phases is not None else None

    def share_of(self, *names: str) -> float:
        """The share of a step that lies in these phases."""
        return sum(row.share for name in names if (row := self.phase(name)) is not None)

    @cached_property
    def mean_ms(self) -> float | None:
        """The mean step in ms; None if shares come from samples alone."""
        rows = self.phases.rows if self.phases is not None else ()
        parts = [row.ms_per_step for row in rows if row.name != "eval"]
        return sum(part for part in parts if part is not None) if parts and None not in parts else None

    @property
    def part_of_time(self) -> float:
        """The part (0..1) of the time that goes to steps rather than to evaluation."""
        return 1.0 - self.share_of("eval")


@once
def step_evidence(view: SessionView, pid: int) -> StepEvidence:
    """The steps of a process over the view's span, computed once for all who ask."""
    stats, totals = view.session.step_stats.get(pid), view.step_totals(pid)
    if stats is None:
        return StepEvidence(pid, view, totals)
    latest = stats.latest
    return StepEvidence(
        pid=pid,
        _view=view,
        totals=totals,
        are_marked=True,
        total=stats.total,
        backwards=stats.backwards,
        updates=stats.updates,
        open_phase=latest.open_phase if latest else None,
        open_for_s=latest.open_for_s if latest else None,
        first_step_s=stats.first_step_s,
        first_slowest_ms=stats.first_slow_ms,
    )
