"""The rules about the course of a run: its first steps, and steps that take longer and longer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tuimon.diagnosis.evidence.course import (
    COMPARABLE_WINDOWS,
    DRIFT_RATIO,
    GROWTH_SIGMAS,
    JUMP_AT_ONCE,
    JUMP_LASTS,
    CourseEvidence,
    Grown,
    grows,
    is_longer,
    least_ratio,
)
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.steps import FIRST_STEPS, SLOW_RATIO
from tuimon.diagnosis.finding import WIDEST_RANGE, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.known import known_of
from tuimon.diagnosis.rule import MARKERS, STEP_TIMES, Rule
from tuimon.diagnosis.threshold import MOST, Threshold
from tuimon.diagnosis.words import after, percent
from tuimon.text import ms_text

FRESH_S = Threshold(
    3.0,
    "seconds after the first step for which a slow start is worth the verdict line",
    "our choice: time to read the line; longer would hide the first real verdict",
)
_LOOK = "look for what grows with the steps: lists of losses, kept graphs (detach), logs"
_MEANT = (
    "check that episodes, sequences or batches are meant to grow: if not, bound the model's work,"
    " such as a memory bank, a cache or kept states"
)


@partial(Rule, "Warm-up", needs=(MARKERS,), thresholds=(SLOW_RATIO, FIRST_STEPS, FRESH_S))
def warmup(evidence: Evidence) -> Finding | None:
    """The run has just begun: its first steps compile, tune and fill caches."""
    stats = evidence.steps.stats
    if (latest := stats.latest) is None or evidence.view.session.exit is not None:
        return None
    if stats.first_step_s is None:
        return Finding(
            severity="info",
            headline="the first step has not ended yet: loading, compiling or filling caches",
            fixes=(Fix("wait: figures follow with the first steps"),),
            evidence={"open_phase": latest.open_phase, "open_for_s": latest.open_for_s},
        )
    median, first = evidence.steps.totals.quantile_ms(0.5), stats.first_slow_ms
    if median is None or evidence.view.now_s - stats.first_step_s > FRESH_S:
        return None
    slow = first is not None and first > SLOW_RATIO * median
    if not slow and stats.total >= FIRST_STEPS:
        return None
    ratio = f", {first / median:.0f}x the median" if slow and first is not None else ""
    return Finding(
        severity="info",
        headline=f"the slowest of the first steps took {first or median:.0f} ms{ratio}",
        fixes=(Fix("wait: the first steps compile, tune and fill caches"),),
        evidence={"first_slowest_ms": first, "median_ms": median, "steps": stats.total},
    )


# -- steps that grow longer


class _Longer(NamedTuple):
    """Two levels of a run of which the later one has longer steps, and what that means."""

    grown: Grown
    than: str  # the earlier level, as a headline names it
    action: str
    cause: str | None = None

    @property
    def is_fault(self) -> bool:
        """True unless a loop may do so by design, such as with longer sequences or larger batches."""
        return self.cause not in ("jump", "more_work")


@partial(
    Rule,
    "Steps grow longer",
    needs=(STEP_TIMES,),
    thresholds=(DRIFT_RATIO, GROWTH_SIGMAS, MOST, JUMP_AT_ONCE, JUMP_LASTS),
    causes=("jump", "more_work", "slower_hour"),
)
def step_time_drift(evidence: Evidence) -> Finding | None:
    """Steps take longer and longer, or have since a jump, by their own work and not because others take the cores.

    Or they are slower now than in the run's best hour.
    """
    course = evidence.course
    found = _longer(course)
    if found is None:
        return None
    grown, together = found.grown, course.does_more_work(found.grown) if found.is_fault else ""
    if together:
        found = found._replace(cause="more_work", action=_MEANT)
    hot, phase = evidence.hottest_in(grown.phase), grown.of(grown.phase)
    place = course.place(grown) or (hot.place if hot is not None else None)
    if found.cause is None:
        known = known_of(place, evidence.samples.where(phase=grown.phase))
        found = found._replace(action=known.action if known is not None else found.action)
    before, now = grown.work if together else grown.step
    times = f"{ms_text(before)} -> {ms_text(now)}"
    longer = f"{now / before:.1f}x as long as" if now >= 2 * before else f"{percent(now / before - 1)} longer than"
    headline = f"steps take {longer} {found.than}: {times}, mostly in {grown.phase}"
    if together:
        headline = f"each step does {now / before:.1f}x as much as {found.than}, {together} alike: {times}"
    fix = Fix(found.action)
    if found.is_fault:
        least = max(1.0, least_ratio(grown.before.steps_ms, grown.now.steps_ms))
        most = max(least, min(now / before, WIDEST_RANGE * least))
        fix = Fix.gaining(found.action, Interval(least, most), likely=most)
    return Finding(
        severity="warning" if found.is_fault else "info",
        cause=found.cause,
        headline=headline,
        fixes=(fix,),
        share_of_step=1.0 - before / now,
        where=(place,) if place is not None else (),
        evidence={
            "before_ms": before,
            "now_ms": now,
            "grown_together": together or None,
            "grown_phase": grown.phase,
            "grown_ms": phase.now_ms - phase.before_ms,
            "since_s": course.seconds_in(grown.now),
            "since_step": int(grown.now.rows[0].first_step),
        },
    )


def _longer(course: CourseEvidence) -> _Longer | None:
    """The growth: steady, at once, or since the best hour; the last is judged over more than the history of windows."""
    grown, works_ms = course.grown, [row.work_ms or 0.0 for row in course.rows]
    if grown is not None and grown.step.now_ms >= DRIFT_RATIO * grown.step.before_ms and is_drift(works_ms):
        return _Longer(grown, "at first", _LOOK)
    if (jump := course.jump) is not None:
        since = f"before step {int(jump.now.rows[0].first_step):,} ({after(course.seconds_in(jump.now))} in)"
        action = "check what changed then: the data, the length of sequences, a schedule, a clock limit"
        return _Longer(jump, since, action, "jump")
    if (slower := course.slower_hour) is not None:
        ended = after(slower.now.span.end_s - slower.before.span.end_s)
        action = "check what is different since: what grows with the steps, other programs, clocks, the file system"
        return _Longer(slower, f"in the best hour, which ended {ended} ago", action, "slower_hour")
    return None


def is_drift(works_ms: Sequence[float]) -> bool:
    """True if the steps of successive windows grow steadily, and by enough."""
    quarter = len(works_ms) // 4
    if len(works_ms) < COMPARABLE_WINDOWS or not is_longer(works_ms[:quarter], works_ms[-quarter:]):
        return False
    return grows(works_ms)
