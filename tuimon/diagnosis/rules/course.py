"""Rules about the course of a run: its first steps, and steps that grow longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.evidence.course import (
    COMPARABLE_WINDOWS,
    DRIFT_RATIO,
    CourseEvidence,
    Grown,
    grows,
    is_longer,
    least_ratio,
)
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.process import FIRST_STEPS, SLOW_RATIO
from tuimon.diagnosis.finding import WIDEST_RANGE, Finding, Fix, new_finding
from tuimon.diagnosis.known import known_work_at
from tuimon.interval import Interval
from tuimon.text import duration_text, ms_text, percent
from tuimon.threshold import HOLD_S

_FIND_GROWTH = "look for what grows with every step: lists of losses, graphs that are kept (detach them), logs"
_CHECK_INTENT = (
    "check that episodes, sequences or batches are meant to grow; if not, limit what each step works through,"
    " such as a memory bank, a cache or kept states"
)


def warmup(evidence: Evidence) -> Finding | None:
    """The run has just begun: its first steps compile, tune and fill caches."""
    stats = evidence.stats
    if stats.first_step_s is None or evidence.view.session.exit is not None:
        return None
    median, first = evidence.totals.quantile_ms(0.5), stats.first_slow_ms
    if median is None or evidence.view.now_s - stats.first_step_s > HOLD_S:
        return None
    slow = first is not None and first > SLOW_RATIO * median
    if not slow and stats.total >= FIRST_STEPS:
        return None
    ratio = f", {first / median:.0f}x the median" if slow and first is not None else ""
    return new_finding(
        f"the slowest of the first steps took {first or median:.0f} ms{ratio}",
        "wait: the first steps compile, tune and fill caches",
        severity="info",
        first_slowest_ms=first,
        median_ms=median,
        steps=stats.total,
    )


# -- steps that grow longer


class _Slowdown(NamedTuple):
    """Two levels of a run, the later one with longer steps, and how a finding words that."""

    grown: Grown
    than: str  # the earlier level, as a headline names it
    action: str
    cause: str | None = None

    @property
    def is_fault(self) -> bool:
        """True unless a loop may do so by design, such as with longer sequences or larger batches."""
        return self.cause not in ("jump", "more_work")


def step_time_drift(evidence: Evidence) -> Finding | None:
    """Steps grow longer, have been longer since a jump, or are longer than in the run's best hour.

    Only by their own work: waits for cores that others take do not count.
    """
    course = evidence.course
    found = _slowdown(course)
    if found is None:
        return None
    grown, together = found.grown, course.does_more_work(found.grown) if found.is_fault else ""
    if together:
        found = found._replace(cause="more_work", action=_CHECK_INTENT)
    hot, phase = evidence.hottest_in(grown.phase), grown.of(grown.phase)
    place = course.place(grown) or (hot.place if hot is not None else None)
    if found.cause is None:
        known = known_work_at(place, evidence.samples.where(phase=grown.phase))
        found = found._replace(action=known.action if known is not None else found.action)
    before, now = grown.work if together else grown.step
    times = f"{ms_text(before)} -> {ms_text(now)}"
    longer = f"take {percent(now / before - 1)} longer" if now < 2 * before else f"are {now / before:.1f}x slower"
    headline = f"steps {longer} than {found.than}: {times}, mostly in {grown.phase}"
    if together:
        headline = f"each step does {now / before:.1f}x as much as {found.than}, {together} alike: {times}"
    fix = Fix(found.action)
    if found.is_fault:
        least = max(1.0, least_ratio(grown.before.steps_ms, grown.now.steps_ms))
        most = max(least, min(now / before, WIDEST_RANGE * least))
        fix = Fix.with_gain(found.action, Interval(least, most), likely=most)
    return new_finding(
        headline,
        fix,
        severity="warning" if found.is_fault else "info",
        cause=found.cause,
        share=1.0 - before / now,
        at=place,
        before_ms=before,
        now_ms=now,
        grown_together=together or None,
        grown_phase=grown.phase,
        grown_ms=phase.now_ms - phase.before_ms,
        since_s=course.seconds_in(grown.now),
        since_step=int(grown.now.rows[0].first_step),
    )


def _slowdown(course: CourseEvidence) -> _Slowdown | None:
    """The growth: steady, in one jump, or since the best hour of the run."""
    grown, works_ms = course.grown, [row.work_ms or 0.0 for row in course.rows]
    if grown is not None and grown.step.now_ms >= DRIFT_RATIO * grown.step.before_ms and is_drift(works_ms):
        return _Slowdown(grown, "at first", _FIND_GROWTH)
    if (jump := course.jump) is not None:
        since = f"before step {int(jump.now.rows[0].first_step):,} ({duration_text(course.seconds_in(jump.now))} in)"
        action = "check what changed then: the data, the length of sequences, a schedule, a clock limit"
        return _Slowdown(jump, since, action, "jump")
    if (slower := course.slower_hour) is not None:
        ended = duration_text(slower.now.span.end_s - slower.before.span.end_s)
        action = "check what has changed since then: what grows with the steps, other programs, clocks, the file system"
        return _Slowdown(slower, f"in the best hour, which ended {ended} ago", action, "slower_hour")
    return None


def is_drift(works_ms: Sequence[float]) -> bool:
    """True if the steps of successive windows grow steadily, and by enough."""
    quarter = len(works_ms) // 4
    if len(works_ms) < COMPARABLE_WINDOWS or not is_longer(works_ms[:quarter], works_ms[-quarter:]):
        return False
    return grows(works_ms)
