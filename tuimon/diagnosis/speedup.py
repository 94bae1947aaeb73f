"""What a fix would gain."""

from __future__ import annotations

from tuimon.diagnosis.finding import WIDEST_RANGE, Fix
from tuimon.diagnosis.threshold import Threshold

HALF = Threshold(
    0.5,
    "part of the time of a line, or of work beside the training, that a fix removes at least",
    "our choice: as if it took half; a line that is made cheaper or called less often seldom costs nothing",
)


def speedup(after: float) -> float | None:
    """Step time now / then, when a step takes this share of what it takes now; None where nothing is gained."""
    return 1.0 / after if 0.0 < after < 1.0 else None


def removing(action: str, share: float, certain: float | None = None) -> Fix:
    """A fix that removes work of this share of the step: all of it at best, ``HALF`` of what is ``certain`` at least.

    The estimate is 1 / (1 - share). Where the range were wider than ``WIDEST_RANGE`` its lower end is half of what
    removing all gains: removing 90 % gains 5 to 10 times, and that it took half, 1.8 times, is ``halving``.
    """
    certain = share if certain is None else certain
    gained = speedup(1.0 - share)
    if gained is None:
        return Fix(action)
    low = max(1.0 / (1.0 - HALF * certain), 1.0 / (1.0 - certain) / WIDEST_RANGE)
    gained = min(gained, WIDEST_RANGE * low)
    return Fix(action, gained, low, gained)


def halving(action: str, share: float, certain: float | None = None) -> tuple[Fix, ...]:
    """The fix that leaves half of work of this share of the step: 1 / (1 - share / 2); none where nothing is gained."""
    gained = speedup(1.0 - HALF * share)
    if gained is None:
        return ()
    return (Fix(action, gained, 1.0 / (1.0 - HALF * (share if certain is None else certain)), gained),)
