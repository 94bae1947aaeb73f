"""Where a run's warm-up ends."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import quantiles

from tuimon.diagnosis.comparison.course.changes import has_trend, line_through

#: Values further from the quartiles than this many times their distance are outliers (Tukey 1977).
_FENCE = 1.5
#: What lasts for this part of a run and longer is no warm-up but the run: where steps take longer at first (compiling,
#: cold caches), and where they take less time, as while a queue is full: that lasts for a few steps, a shift of the
#: machine's speed for long.
_MOST = 1 / 3
_MOST_FASTER = 1 / 10


def warmup_length(series: Sequence[float]) -> int:
    """How many of the first values to leave out: those that are outliers beside the second half, all to one side.

    Where that half grows or falls all the time, what it has been before follows from how it does.
    Of 9 7 5 5 4 5 5 4 it is 2. One that is no warm-up is taken for it in about one run of a hundred, and costs a value.
    """
    half = series[len(series) // 2 :]
    if len(half) < 4:
        return 0
    if has_trend(half):
        line = line_through(half, len(half) - len(series))
        series = [value - own for value, own in zip(series, line, strict=True)]
        half = series[len(series) // 2 :]
    lower, _, upper = quantiles(half, n=4)
    fence = _FENCE * (upper - lower)
    above = next((at for at, value in enumerate(_first(series, _MOST)) if value <= upper + fence), 0)
    below = next((at for at, value in enumerate(_first(series, _MOST_FASTER)) if value >= lower - fence), 0)
    return max(above, below)


def _first(series: Sequence[float], part: float) -> Sequence[float]:
    return series[: int(part * len(series)) + 1]
