"""What a fix would gain."""

from __future__ import annotations

from tuimon.diagnosis.threshold import Threshold

HALF = Threshold(
    0.5,
    "part of the time of a line, or of work beside the training, that a fix removes at least",
    "our choice: as if it took half; a line that is made cheaper or called less often seldom costs nothing",
)


def speedup(after: float) -> float | None:
    """Step time now / then, when a step takes this share of what it takes now; None where nothing is gained."""
    return 1.0 / after if 0.0 < after < 1.0 else None
