"""The rule about a run's course: steps that grow longer."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from tuimon.diagnosis.evidence.course import (
    COMPARABLE_WINDOWS,
    DRIFT_RATIO,
    GROWTH_SIGMAS,
    JUMP_AT_ONCE,
    JUMP_LASTS,
    WARMUP_WINDOWS,
    Growth,
    first_and_last,
    grows,
    steady_windows,
)
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import WIDEST_RANGE, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import STEP_TIMES, Rule
from tuimon.diagnosis.rules.memory_growth import let_go, places_of
from tuimon.diagnosis.threshold import MOST
from tuimon.diagnosis.words import after, percent
from tuimon.records import Place
from tuimon.text import ms_text

_LOOK = "look for what grows with the steps: lists of losses, kept graphs (detach), logs"
_DENORMALS = "; if its values shrink towards zero, torch.set_flush_denormal(True): some CPUs are slow with such numbers"


def step_time_drift(evidence: Evidence) -> Finding | None:
    """Steps grow longer and longer, by their own work, not because others take the cores; or have done so at once."""
    if not is_drift(evidence.work_history) or evidence.grown is None:
        return _jump(evidence) or _slower_hour(evidence)
    early, late = first_and_last(steady_windows(evidence.step_history))
    before, now = median(early), median(late)
    if now < DRIFT_RATIO * before:
        return _jump(evidence) or _slower_hour(evidence)
    phase, place = evidence.grown
    work = Growth(*(median(end) for end in first_and_last(steady_windows(evidence.work_history))))
    hooks = tuple(each for each in evidence.run.here.sure_keeping if each.kept == "hook")
    together = evidence.does_more_work(work) if not hooks else ""
    if together:
        return _more_work(evidence, work, together, place)
    meant_ms = evidence.more_work_ms if not hooks else 0.0
    least = max(1.0, quantiles(late)[0] / (quantiles(early)[2] + meant_ms))
    gain = max(least, min(now / (before + meant_ms), WIDEST_RANGE * least))
    action = let_go(hooks)[0].action if hooks else _LOOK
    return Finding(
        headline=(
            f"steps take {_longer(before, now)} at first: {ms_text(before)} -> {ms_text(now)}, mostly in {phase.name}"
        ),
        fixes=(Fix.gaining(action, Interval(least, gain), likely=gain),),
        share_of_step=1.0 - before / now,
        where=places_of(hooks) or ((place,) if place else ()),
        evidence={
            "first_ms": before,
            "now_ms": now,
            "more_work_ms": meant_ms,
            "grown_phase": phase.name,
            "grown_ms": phase.now_ms - phase.before_ms,
        },
    )


def _more_work(evidence: Evidence, work: Growth, together: str, place: Place | None) -> Finding:
    """A fact, not a fault, as far as times show: longer episodes, sequences and batches are meant to take longer."""
    before, now = work
    return Finding(
        severity="info",
        cause="more_work",
        headline=f"each step does {now / before:.1f}x its first work, {together} alike: {before:.3g} -> {now:.3g} ms",
        fixes=(
            Fix(
                "check that episodes, sequences or batches are meant to grow: if not, bound the model's work,"
                f" such as a memory bank, a cache or kept states{_DENORMALS if evidence.uses_gpu is False else ''}"
            ),
        ),
        share_of_step=1.0 - before / now,
        where=(place,) if place else (),
        evidence={"first_ms": before, "now_ms": now, "grown_together": together},
    )


def _jump(evidence: Evidence) -> Finding | None:
    """A fact, not a fault: what a loop does may change by design, so no gain is estimated."""
    jump = evidence.jump
    if jump is None:
        return None
    phase, place = jump.phase, jump.place
    return Finding(
        severity="info",
        cause="jump",
        headline=(
            f"steps take {_longer(jump.before_ms, jump.now_ms)} before step {jump.step:,} ({after(jump.since_s)} in):"
            f" {ms_text(jump.before_ms)} -> {ms_text(jump.now_ms)}, mostly in {phase.name}"
        ),
        fixes=(Fix("check what changed then: the data, the length of sequences, a schedule, a clock limit"),),
        share_of_step=1.0 - jump.before_ms / jump.now_ms,
        where=(place,) if place else (),
        evidence={
            "since_s": jump.since_s,
            "since_step": jump.step,
            "before_ms": jump.before_ms,
            "now_ms": jump.now_ms,
            "grown_phase": phase.name,
            "grown_ms": phase.now_ms - phase.before_ms,
        },
    )


def _slower_hour(evidence: Evidence) -> Finding | None:
    """Slower than its own best hour, beyond what the history of single windows shows."""
    hours = evidence.slower_hours
    if hours is None:
        return None
    before, now = hours.best, hours.last
    phase, longer, more_work = now.grown_since(before), now.step_ms / before.step_ms, now.does_more_work_than(before)
    hot = evidence.hottest_in(phase.name)
    action = "check what is different since: what grows with the steps, other programs, clocks, the file system"
    return Finding(
        severity="info" if more_work else "warning",
        cause="slower_hour",
        headline=(
            f"steps take {_longer(before.step_ms, now.step_ms)} in the best hour, which ended {after(hours.ago_s)} ago:"
            f" {phase.name} {ms_text(phase.before_ms)} -> {ms_text(phase.now_ms)}"
        ),
        fixes=(Fix(action) if more_work else Fix.gaining(action, Interval(hours.least, longer), likely=longer),),
        share_of_step=1.0 - 1.0 / longer,
        where=(hot.place,) if hot is not None else (),
        evidence={
            "first_ms": before.step_ms,
            "now_ms": now.step_ms,
            "grown_phase": phase.name,
            "grown_ms": phase.now_ms - phase.before_ms,
        },
    )


def is_drift(history: Sequence[float | None]) -> bool:
    """True if the mean steps of windows, in ms, grow steadily, and by enough; None where no step ended."""
    windows = steady_windows(history)
    if len(windows) < COMPARABLE_WINDOWS - WARMUP_WINDOWS:
        return False
    early, late = first_and_last(windows)
    if median(late) < DRIFT_RATIO * median(early) or quantiles(late)[0] <= quantiles(early)[2]:
        return False
    return grows(windows)


def _longer(before: float, now: float) -> str:
    return f"{now / before:.1f}x as long as" if now >= 2 * before else f"{percent(now / before - 1)} longer than"


STEP_TIME_DRIFT = Rule(
    title="Steps grow longer",
    judge=step_time_drift,
    explanation=(
        "Steps take longer and longer: something grows with them. It rests on a rank test (Mann-Kendall) over the mean"
        " step times of at least 16 windows, without what the threads waited for a core, and compares the last quarter"
        " of the run with the first. It names the phase and line that have grown most. Growth that falls back at each"
        " epoch is no drift, after two epochs. If forward and backward have grown alike, or a rollout's environment and"
        " policy, steps do more work: that is information, as is a single jump that has lasted for a minute. Of hours,"
        " the last is compared with the best."
    ),
    needs=(STEP_TIMES,),
    thresholds=(DRIFT_RATIO, GROWTH_SIGMAS, MOST, JUMP_AT_ONCE, JUMP_LASTS),
    causes=("jump", "more_work", "slower_hour"),
)
