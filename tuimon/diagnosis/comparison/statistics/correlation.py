"""How long the values of a series depend on those before them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

#: A series has at least so many blocks: fewer do not show how blocks vary.
LEAST_BLOCKS = 5
#: What lasts over so much of a series, from a twentieth to a tenth, is taken to last over all of it.
_LASTING = (0.05, 0.1)
#: Of flicker noise, which has as much variance in each octave of time, series of 20 to 120 values show so little less
#: of what lasts, and so uncertainly (degrees of freedom): in 1,600 to 9,800 made-up ones 0.73 to 0.80, and 1.4 to 1.7.
_SEEN_OF_FLICKER = 0.75
LASTING_FREEDOM = 1.5
#: Neighbours count as correlated by no more than this: beyond, some dozens of values are worth one.
_MOST_CORRELATED = 0.95


def block_length(series: Sequence[float]) -> int:
    """How many neighbours make a block, by the series' own correlation: 1 where there is none.

    Source: Politis and White (2004), Automatic block-length selection for the dependent bootstrap, with the correction
    of Patton, Politis and White (2009); for circular blocks.
    """
    number = len(series)
    if number < 2 * LEAST_BLOCKS:
        return 1
    most_lags = min(number - 1, math.ceil(math.sqrt(number)) + max(5, math.ceil(math.log10(number))))
    covariances = _autocovariances(series, most_lags)
    if covariances[0] <= 0:
        return 1
    lags = min(2 * max(1, _last_correlated(covariances, number)), most_lags)
    window = {lag: min(1.0, 2 * (1 - abs(lag) / lags)) for lag in range(-lags, lags + 1)}  # flat, then to 0
    at_zero = sum(weight * covariances[abs(lag)] for lag, weight in window.items())
    slope = sum(weight * abs(lag) * covariances[abs(lag)] for lag, weight in window.items())
    if at_zero <= 0:
        return 1
    best: float = (1.5 * slope * slope * number / (at_zero * at_zero)) ** (1 / 3)
    return max(1, min(round(best), number // LEAST_BLOCKS))


def independent_values(series: Sequence[float]) -> float:
    """How many independent values would give as precise a mean, at least 2: 60 values correlated by 0.5 are worth 20.

    The correlation of neighbours is underestimated in a short series: by (1 + 3 r) / n, which is added (Kendall 1954).
    """
    number = len(series)
    own, next_to = _autocovariances(series, 1)
    found = next_to / own if own > 0 else 0.0
    correlated = min(_MOST_CORRELATED, max(0.0, found + (1 + 3 * max(0.0, found)) / number))
    return max(2.0, number * (1 - correlated) / (1 + correlated))


def lasting_variance(series: Sequence[float]) -> float:
    """Variance of another such series' mean about this one's, as a ratio squared: 0 where values are independent.

    It is the part of the variance that values share with those a twentieth to a tenth of the series later. What changes
    the speed of a machine for seconds also changes it for minutes: there is no longest time after which it is back
    where it was, so neither a longer series nor the next one averages it out. It is known with LASTING_FREEDOM. Source:
    ours; without it 4 of 20 pairs of runs of one program on a virtual machine were called different, and 24 of 180
    pairs cut from long runs while it counted as known (``make diff-truth``).
    """
    number, mean = len(series), fmean(series)
    if number < 2 * LEAST_BLOCKS or mean <= 0:
        return 0.0
    first, last = (max(1, round(part * number)) for part in _LASTING)
    return max(0.0, fmean(_autocovariances(series, last)[first:])) / (_SEEN_OF_FLICKER * mean * mean)


def _last_correlated(covariances: Sequence[float], number: int) -> int:
    """The last lag before which correlations stand out, once several in a row do not."""
    limit = 2 * math.sqrt(math.log10(number) / number)
    in_a_row = max(5, math.ceil(math.sqrt(math.log10(number))))
    quiet = 0
    for lag in range(1, len(covariances)):
        quiet = quiet + 1 if abs(covariances[lag] / covariances[0]) < limit else 0
        if quiet == in_a_row:
            return lag - in_a_row
    return len(covariances) - 1 - quiet


def _autocovariances(series: Sequence[float], most_lags: int) -> list[float]:
    mean, number = fmean(series), len(series)
    deviations = [value - mean for value in series]
    return [
        sum(a * b for a, b in zip(deviations, deviations[lag:], strict=False)) / number for lag in range(most_lags + 1)
    ]
