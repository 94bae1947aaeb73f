"""Steps and phases of one process, as the rules read them; and its few long steps."""

from __future__ import annotations

from msgspec import Struct

from tuimon.diagnosis.threshold import LARGE, MOST, Threshold
from tuimon.records import bucket_length_ns
from tuimon.session.rows import PhaseRow, PhaseTable
from tuimon.session.step_sums import Totals
from tuimon.session.steps import StepStats

FIRST_STEPS = Threshold(
    3, "steps until which all figures are those of the start", "our choice: the fewest steps that have a median"
)
SLOW_RATIO = Threshold(
    3.0,
    "times the usual that a step, its side work or a batch takes to be an exception: compilation and caches",
    "measured in tests/scenarios: without warm-up the slowest of the first steps takes 1.4 to 2.4 medians (healthy_gan,"
    " healthy_two_trainings), with it 4 to 8 (healthy_lbfgs, healthy_trainer)",
)


class Collections(Struct, frozen=True, gc=False):
    """Python's garbage collections within the window of recent steps; of half a millisecond and more."""

    total_ns: int
    pauses: int
    longest_ns: int


class StepEvidence(Struct, frozen=True, gc=False):
    """Steps of one process: of all its run, of the last 30 s ("recent"), and of its beginning."""

    total: int  # since the marker stream began
    backwards: int  # passes since then
    recent: int  # how many of them the evidence covers
    window_s: float  # that the recent steps cover
    median_ms: float | None  # recent
    collections: Collections | None  # recent; None where the process does not report them
    open_phase: str | None  # what the trainer is in now
    open_for_s: float | None
    first_step_s: float | None  # end of the first window with a step
    first_slowest_ms: float | None  # the slowest of the first five steps


def step_evidence(stats: StepStats, totals: Totals) -> StepEvidence:
    """``totals``: of the steps in question."""
    summary = stats.summary(totals)
    collections = None
    if (sums := totals.sums).gc_windows:
        collections = Collections(int(sums.gc_ns), int(sums.gc_count), int(sums.gc_longest_ns))
    return StepEvidence(
        total=stats.total,
        backwards=stats.backwards,
        recent=totals.steps,
        window_s=totals.sums.span_s,
        median_ms=summary.median_ms,
        collections=collections,
        open_phase=summary.open_phase,
        open_for_s=summary.open_for_s,
        first_step_s=stats.first_step_s,
        first_slowest_ms=stats.first_slow_ms,
    )


def phase_row(table: PhaseTable | None, name: str) -> PhaseRow | None:
    """One phase of a table."""
    return next((r for r in table.rows if r.name == name), None) if table else None


def mean_step_ms(table: PhaseTable) -> float | None:
    """Mean step time of a table in ms; None where shares are inferred."""
    parts = [r.ms_per_step for r in table.rows if r.name != "eval"]
    return sum(p for p in parts if p is not None) if None not in parts else None


class LongestSteps(Struct, frozen=True, gc=False):
    """How many of all steps are the long ones."""

    steps: int
    of: int


def longest_steps(totals: Totals, ms_per_step: float) -> LongestSteps | None:
    """The few steps that hold most of a time that averages ``ms_per_step``; None where it is spread over more.

    Worked example: of 40 steps one takes 4,100 ms, the others 100. A mean wait of 100 ms lies in that one: it is
    4,000 ms longer than usual. A wait of 50 ms in each of 40 equal steps lies in no longer one.
    """
    usual_ms, of = totals.quantile_ms(0.5), sum(totals.histogram.values())
    if usual_ms is None or ms_per_step <= 0:
        return None
    left_ms, steps = MOST * ms_per_step * of, 0
    for bucket, count in sorted(totals.histogram.items(), reverse=True):
        longer_ms = bucket_length_ns(bucket) / 1e6 - usual_ms
        if longer_ms <= 0:
            return None
        needed = min(count, -int(-left_ms // longer_ms))
        steps, left_ms = steps + needed, left_ms - needed * longer_ms
        if left_ms <= 0:
            return LongestSteps(steps, of) if steps <= LARGE * of else None
    return None
