"""Steps and phases of one process, as the rules read them."""

from __future__ import annotations

from msgspec import Struct

from tuimon.diagnosis.evidence.bursts import Burst, bursts
from tuimon.diagnosis.threshold import Threshold
from tuimon.session.rows import PhaseRow, PhaseTable
from tuimon.session.steps.steps import StepStats
from tuimon.session.steps.totals import Totals

SETTLED_S = Threshold(
    4.0,
    "seconds that the phase table must cover before a share near its threshold counts",
    "our choice: until then loaders fill their queues; a warning waits, a critical share shows at once",
)


class Collections(Struct, frozen=True, gc=False):
    """Python's garbage collections within the window of recent steps; of half a millisecond and more."""

    total_ns: int
    pauses: int
    longest_ns: int


class StepEvidence(Struct, frozen=True, gc=False):
    """Steps of one process: of all its run, of the last 30 s ("recent"), and of its beginning."""

    total: int  # since the marker stream began
    recent: int  # how many of them the evidence covers
    window_s: float  # that the recent steps cover
    median_ms: float | None  # recent
    collections: Collections | None  # recent; None where the process does not report them
    open_phase: str | None  # what the trainer is in now
    open_for_s: float | None
    first_step_s: float | None  # end of the first window with a step
    first_slowest_ms: float | None  # the slowest of the first five steps
    burst: Burst | None = None  # of side work, recent


def step_evidence(stats: StepStats, totals: Totals) -> StepEvidence:
    """``totals``: of the steps in question."""
    summary = stats.summary(totals)
    collections = None
    if totals.gc_ns is not None:
        collections = Collections(totals.gc_ns, totals.gc_count, totals.gc_longest_ns)
    return StepEvidence(
        total=stats.total,
        recent=totals.count,
        window_s=totals.window_s,
        median_ms=summary.median_ms,
        collections=collections,
        open_phase=summary.open_phase,
        open_for_s=summary.open_for_s,
        first_step_s=stats.first_step_s,
        first_slowest_ms=stats.first_slow_ms,
        burst=bursts(totals),
    )


def phase_row(table: PhaseTable | None, name: str) -> PhaseRow | None:
    """One phase of a table."""
    return next((r for r in table.rows if r.name == name), None) if table else None


def mean_step_ms(table: PhaseTable) -> float | None:
    """Mean step time of a table in ms; None where shares are inferred."""
    parts = [r.ms_per_step for r in table.rows if r.name != "eval"]
    return sum(p for p in parts if p is not None) if None not in parts else None


def is_settled(table: PhaseTable) -> bool:
    """True if a table covers enough of the run for a share near its threshold."""
    return table.window_s >= SETTLED_S
