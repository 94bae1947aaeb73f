"""What a fix would gain."""

from __future__ import annotations

import math

from tuimon.diagnosis.finding import WIDEST_RANGE


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
