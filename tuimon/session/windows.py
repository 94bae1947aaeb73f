"""Spans of a run, and the statistics that windows share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

#: The time that "recent" figures cover, in seconds.
WINDOW_S = 30.0
#: Half the width of an interval that holds 95 % of what sampling shows, in standard deviations.
_SIGMAS = 1.96


class Span(NamedTuple):
    """A stretch of the run, in seconds of the records' clock."""

    begin_s: float = -math.inf
    end_s: float = math.inf


#: In which nothing lies.
NEVER = Span(math.inf, -math.inf)


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of the values that were measured; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def weighted_median(values: Iterable[tuple[float, float]]) -> float | None:
    """The lower median of (value, weight) pairs; None without any."""
    ordered = sorted(values)
    half = sum(weight for _, weight in ordered) / 2
    for value, weight in ordered:
        half -= weight
        if half <= 0:
            return value
    return None


def sampling_error(share: float, samples: float) -> float:
    """Half the width of the 95 % interval of a share (0..1) of so many samples (binomial, normal approximation)."""
    return _SIGMAS * math.sqrt(max(0.0, share * (1.0 - share)) / max(1.0, samples))
