"""The gain of a fix."""

from __future__ import annotations

import math

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import WIDEST_RANGE, Fix
from tuimon.diagnosis.threshold import Threshold

MODEL_ERROR = Threshold(
    0.10,
    "part by which the simulated gain on a GPU may be too large",
    "measured with the simulated trainings of tests/scenarios: at most 0.05 for waits and side work",
)
TAKES_ERROR = Threshold(
    0.15,
    "how far off a part of the time may be that a change was measured to take of other trainings",
    "measured in bench/fused_update.py: 0.10 to 0.47 for 0.30, 0.13 to 0.41 for 0.35; and in bench/cpu_settings.py",
)


def speedup_without(evidence: Evidence, share: float) -> float | None:
    """The gain, step time now / then, without this share (0..1) of each step; None if nothing is gained.

    The evaluation counts as part of the training: if it takes half of the time, steps that take half as long make the
    whole 4/3x faster.
    """
    removed = share * evidence.in_steps
    return 1.0 / (1.0 - removed) if removed > 0.0 and share < 1.0 else None


def likely(low: float | None, high: float | None) -> float | None:
    """The middle of a range of gains, by ratio; its lower end where the ends are further apart than a fix's may be.

    A gain of 1.2 to 1.8 is likely 1.47: as far from the one as from the other.
    """
    if low is None or high is None or not low <= high <= WIDEST_RANGE * low:
        return low
    return math.sqrt(low * high)


def within(fix: Fix | None, low: float | None, high: float | None) -> Fix:
    """The gain of a fix, kept between bounds that other evidence gives; where none is estimated, the bounds alone."""
    if fix is None or fix.estimated_speedup is None or fix.low is None or low is None or high is None:
        return Fix("", likely(low, high), low)
    estimated = min(max(fix.estimated_speedup, low), high)
    low = max(low, min(estimated, fix.low / (1.0 + MODEL_ERROR)))
    return Fix("", min(estimated, WIDEST_RANGE * low), low)
