"""Lines of code that take more or less of a step than before."""

from __future__ import annotations

import math
import os
from statistics import NormalDist
from typing import NamedTuple

from tuimon.diagnosis.comparison.result import LineChange
from tuimon.diagnosis.comparison.side import Runs
from tuimon.records import Place

#: Lines that are listed, those that changed most.
LISTED = 8
#: A line with less of the step on both sides is not compared.
_LEAST_SHARE = 0.01
#: A line is the same in both runs wherever it stands now: file, function and text; its number only without text.
_Key = tuple[str, str, str]


class _Line(NamedTuple):
    """The time of a step that a line takes, and its variance."""

    place: Place
    share: float  # of the samples
    ms: float
    variance: float


def line_changes(before: Runs, after: Runs) -> list[LineChange]:
    """The lines of the training thread whose share of the step changed most, in ms of a step."""
    one, other = _lines(before), _lines(after)
    if not one or not other:
        return []
    none = (_none(before), _none(after))
    weighty = {key: line.place for side in (other, one) for key, line in side.items() if line.share >= _LEAST_SHARE}
    strict = NormalDist().inv_cdf(1 - 0.025 / max(1, len(weighty)))
    changes = [
        _change(
            one.get(key) or _Line(place, 0.0, 0.0, none[0]), other.get(key) or _Line(place, 0.0, 0.0, none[1]), strict
        )
        for key, place in weighty.items()
    ]
    return sorted(changes, key=lambda change: -abs(change.difference_ms))[:LISTED]


def _change(before: _Line, after: _Line, strict: float) -> LineChange:
    difference, deviation = after.ms - before.ms, math.sqrt(before.variance + after.variance)
    place = after.place if after.share else before.place
    return LineChange(
        file=place.file,
        line=place.line,
        function=place.function,
        source=place.source,
        before_ms=before.ms,
        after_ms=after.ms,
        difference_ms=difference,
        low_ms=difference - 1.96 * deviation,
        high_ms=difference + 1.96 * deviation,
        significant=abs(difference) > strict * deviation,
    )


def _lines(runs: Runs) -> dict[_Key, _Line]:
    """The lines of a side by what identifies them; the samples of several runs count together."""
    places: dict[_Key, Place] = {}
    counts: dict[_Key, int] = {}
    for run in runs:
        for line in run.figures.lines:
            key = _key(line.place)
            places[key] = line.place
            counts[key] = counts.get(key, 0) + line.samples
    total, step_ms = _samples(runs), _step_ms(runs)
    return {
        key: _Line(places[key], count / total, count / total * step_ms, _variance(count / total, total) * step_ms**2)
        for key, count in counts.items()
    }


def _none(runs: Runs) -> float:
    """The variance of a line that no sample shows: as of one that one sample shows."""
    total = _samples(runs)
    return _variance(1 / total, total) * _step_ms(runs) ** 2


def _variance(share: float, samples: int) -> float:
    """Variance of a share of samples at random moments (binomial)."""
    return max(share * (1 - share), 1 / samples) / samples


def _samples(runs: Runs) -> int:
    return max(1, sum(run.figures.lines[0].total for run in runs if run.figures.lines))


def _step_ms(runs: Runs) -> float:
    return sum(run.level.total_ns for run in runs) / sum(run.level.steps for run in runs) / 1e6


def _key(place: Place) -> _Key:
    return os.path.basename(place.file), place.function, place.source.strip() or str(place.line)
