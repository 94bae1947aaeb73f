"""The rules about a run's course: its first steps, and steps that grow longer."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.diagnosis.evidence.course import (
    COMPARABLE_WINDOWS,
    DRIFT_RATIO,
    GROWTH_SIGMAS,
    JUMP_AT_ONCE,
    JUMP_LASTS,
    Grown,
    TimeGrowth,
    grows,
    is_longer,
    least_ratio,
)
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.steps import FIRST_STEPS, SLOW_RATIO
from tuimon.diagnosis.finding import WIDEST_RANGE, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import MARKERS, STEP_TIMES, Rule
from tuimon.diagnosis.threshold import MOST, Threshold
from tuimon.diagnosis.words import after, percent
from tuimon.records import Place
from tuimon.text import ms_text

FRESH_S = Threshold(
    3.0,
    "seconds after the first step for which a slow start is worth the verdict line",
    "our choice: time to read the line; longer would hide the first real verdict",
)
_LOOK = "look for what grows with the steps: lists of losses, kept graphs (detach), logs"


def warmup(evidence: Evidence) -> Finding | None:
    """The run has only just begun: the first steps compile, tune and fill caches."""
    steps = evidence.steps
    if not steps.are_marked or evidence.run.has_ended:
        return None
    if steps.first_step_s is None:
        return Finding(
            severity="info",
            headline="the first step has not ended yet: loading, compiling or filling caches",
            fixes=(Fix("wait: figures follow with the first steps"),),
            evidence={"open_phase": steps.open_phase, "open_for_s": steps.open_for_s},
        )
    median, first = steps.median_ms, steps.first_slowest_ms
    if median is None or evidence.run.now_s - steps.first_step_s > FRESH_S:
        return None
    slow = first is not None and first > SLOW_RATIO * median
    if not slow and steps.total >= FIRST_STEPS:
        return None
    ratio = f", {first / median:.0f}x the median" if slow and first is not None else ""
    return Finding(
        severity="info",
        headline=f"the slowest of the first steps took {first or median:.0f} ms{ratio}",
        fixes=(Fix("wait: the first steps compile, tune and fill caches"),),
        evidence={"first_slowest_ms": first, "median_ms": median, "steps": steps.total},
    )


WARMUP = Rule(
    title="Warm-up",
    judge=warmup,
    needs=(MARKERS,),
    thresholds=(SLOW_RATIO, FIRST_STEPS, FRESH_S),
)


# -- steps that grow longer


def step_time_drift(evidence: Evidence) -> Finding | None:
    """Steps grow longer and longer, by their own work, not because others take the cores; or have done so at once."""
    return _growth(evidence) or _jump(evidence) or _slower_hour(evidence)


def _growth(evidence: Evidence) -> Finding | None:
    course = evidence.course
    grown = course.grown
    if grown is None or grown.step.now_ms < DRIFT_RATIO * grown.step.before_ms:
        return None
    if not is_drift([row.work_ms or 0.0 for row in course.rows]):
        return None
    together = course.does_more_work(grown)
    if together:
        return _more_work(evidence, grown, together)
    before, now = grown.step
    least = max(1.0, least_ratio(grown.before.steps_ms, grown.now.steps_ms))
    gain = max(least, min(now / before, WIDEST_RANGE * least))
    return Finding(
        headline=(
            f"steps take {_longer(grown.step)} at first: {ms_text(before)} -> {ms_text(now)}, mostly in {grown.phase}"
        ),
        fixes=(Fix.gaining(_LOOK, Interval(least, gain), likely=gain),),
        share_of_step=1.0 - before / now,
        where=_where(evidence, grown),
        evidence={"first_ms": before, "now_ms": now, **_facts(grown)},
    )


def _more_work(evidence: Evidence, grown: Grown, together: str) -> Finding:
    """A fact, not a fault, as far as times show: longer episodes, sequences and batches are meant to take longer."""
    before, now = grown.work
    return Finding(
        severity="info",
        cause="more_work",
        headline=f"each step does {now / before:.1f}x its first work, {together} alike: {before:.3g} -> {now:.3g} ms",
        fixes=(
            Fix(
                "check that episodes, sequences or batches are meant to grow: if not, bound the model's work,"
                " such as a memory bank, a cache or kept states"
            ),
        ),
        share_of_step=1.0 - before / now,
        where=_where(evidence, grown),
        evidence={"first_ms": before, "now_ms": now, "grown_together": together},
    )


def _jump(evidence: Evidence) -> Finding | None:
    """A fact, not a fault: what a loop does may change by design, so no gain is estimated."""
    jump = evidence.course.jump
    if jump is None:
        return None
    before, now = jump.step
    since_s, step = evidence.course.seconds_in(jump.now), int(jump.now.rows[0].first_step)
    return Finding(
        severity="info",
        cause="jump",
        headline=(
            f"steps take {_longer(jump.step)} before step {step:,} ({after(since_s)} in):"
            f" {ms_text(before)} -> {ms_text(now)}, mostly in {jump.phase}"
        ),
        fixes=(Fix("check what changed then: the data, the length of sequences, a schedule, a clock limit"),),
        share_of_step=1.0 - before / now,
        where=_where(evidence, jump),
        evidence={"since_s": since_s, "since_step": step, "before_ms": before, "now_ms": now, **_facts(jump)},
    )


def _slower_hour(evidence: Evidence) -> Finding | None:
    """Slower than its own best hour, beyond what the history of single windows shows."""
    slower = evidence.course.slower_hour
    if slower is None:
        return None
    phase, (before, now) = slower.of(slower.phase), slower.work
    gain = Interval(least_ratio(slower.before.works_ms, slower.now.works_ms), now / before)
    ago_s = slower.now.span.end_s - slower.before.span.end_s
    more_work = evidence.course.does_more_work(slower)
    action = "check what is different since: what grows with the steps, other programs, clocks, the file system"
    return Finding(
        severity="info" if more_work else "warning",
        cause="slower_hour",
        headline=(
            f"steps take {_longer(slower.work)} in the best hour, which ended {after(ago_s)} ago:"
            f" {slower.phase} {ms_text(phase.before_ms)} -> {ms_text(phase.now_ms)}"
        ),
        fixes=(Fix(action) if more_work else Fix.gaining(action, gain, likely=gain.high),),
        share_of_step=1.0 - before / now,
        where=_where(evidence, slower),
        evidence={"first_ms": before, "now_ms": now, **_facts(slower)},
    )


def _where(evidence: Evidence, grown: Grown) -> tuple[Place, ...]:
    """The line that has grown most; without samples of both ends the one that takes most now."""
    hot = evidence.hottest_in(grown.phase)
    place = evidence.course.place(grown) or (hot.place if hot is not None else None)
    return (place,) if place is not None else ()


def _facts(grown: Grown) -> dict[str, float | str]:
    phase = grown.of(grown.phase)
    return {"grown_phase": grown.phase, "grown_ms": phase.now_ms - phase.before_ms}


def is_drift(works_ms: Sequence[float]) -> bool:
    """True if the steps of windows grow steadily, and by enough."""
    quarter = len(works_ms) // 4
    if len(works_ms) < COMPARABLE_WINDOWS or not is_longer(works_ms[:quarter], works_ms[-quarter:]):
        return False
    return grows(works_ms)


def _longer(step: TimeGrowth) -> str:
    before, now = step
    return f"{now / before:.1f}x as long as" if now >= 2 * before else f"{percent(now / before - 1)} longer than"


STEP_TIME_DRIFT = Rule(
    title="Steps grow longer",
    judge=step_time_drift,
    needs=(STEP_TIMES,),
    thresholds=(DRIFT_RATIO, GROWTH_SIGMAS, MOST, JUMP_AT_ONCE, JUMP_LASTS),
    causes=("jump", "more_work", "slower_hour"),
)
