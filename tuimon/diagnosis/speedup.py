"""What a fix would gain."""

from __future__ import annotations

import math

from tuimon.diagnosis.finding import WIDEST_RANGE, Fix
from tuimon.diagnosis.threshold import Threshold

MODEL_ERROR = Threshold(
    0.10,
    "part by which the simulated gain on a GPU may be too large",
    "measured with the simulated trainings of tests/scenarios: at most 0.05 for waits and side work",
)


def speedup(after: float) -> float | None:
    """Step time now / then, when a step takes this share of what it takes now; None where nothing is gained."""
    return 1.0 / after if 0.0 < after < 1.0 else None


def likely(low: float | None, high: float | None) -> float | None:
    """The middle of a range of gains, by ratio; its lower end where the ends are further apart than a fix's may be.

    A gain of 1.2 to 1.8 is likely 1.47: as far from the one as from the other.
    """
    if low is None or high is None or not low <= high <= WIDEST_RANGE * low:
        return low
    return math.sqrt(low * high)


def within(fix: Fix | None, low: float | None, high: float | None) -> Fix:
    """The gain of a fix, of which other evidence shows that it is between these; without one, what that leaves open."""
    if fix is None or fix.estimated_speedup is None or fix.low is None or low is None or high is None:
        return Fix("", likely(low, high), low)
    estimated = min(max(fix.estimated_speedup, low), high)
    low = max(low, min(estimated, fix.low / (1.0 + MODEL_ERROR)))
    return Fix("", min(estimated, WIDEST_RANGE * low), low)
