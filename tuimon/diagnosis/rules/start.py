"""The rule about the beginning of a run."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.steps import FIRST_STEPS, SLOW_RATIO
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rule import MARKERS, Rule
from tuimon.diagnosis.threshold import Threshold

FRESH_S = Threshold(
    3.0,
    "seconds after the first step for which a slow start is worth the verdict line",
    "our choice: time to read the line; longer would hide the first real verdict",
)


def warmup(evidence: Evidence) -> Finding | None:
    """The run has only just begun: the first steps compile, tune and fill caches."""
    steps = evidence.steps
    if steps is None or evidence.run.has_ended:
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
    explanation=(
        "The first steps compile, tune and fill caches, so their times are not those of the run. It rests on the"
        " slowest of the first five steps against the median. While it holds, no other rule judges; before the first"
        " step has ended there is no finding at all, but of harm: memory that runs out."
    ),
    needs=(MARKERS,),
    thresholds=(SLOW_RATIO, FIRST_STEPS, FRESH_S),
)
