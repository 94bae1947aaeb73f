"""Steps and phases of one process, as the rules read them."""

from __future__ import annotations

import math
from functools import cached_property

from msgspec import Struct

from tuimon.diagnosis.threshold import Threshold
from tuimon.session.phase_table import PhaseRow, PhaseTable
from tuimon.session.session import SessionView
from tuimon.session.steps import StepStats, Totals

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
    """The steps of a process over the evidence's span; none without markers."""

    pid: int
    _view: SessionView

    @cached_property
    def stats(self) -> StepStats:
        """Its steps since the marker stream began; none without markers."""
        return self._view.session.step_stats[self.pid]

    @property
    def are_marked(self) -> bool:
        """True if markers delimit them."""
        return self.pid in self._view.session.step_stats

    @property
    def totals(self) -> Totals:
        """Their sums."""
        return self._view.step_totals(self.pid)

    @property
    def has_ended(self) -> bool:
        """True if a whole step has ended, as markers or samples show."""
        return self.stats.total > 0 if self.are_marked else self.phases is not None

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
