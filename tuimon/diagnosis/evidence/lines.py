"""Hot lines of the user's code, added up by function."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tuimon.records import Place
from tuimon.session.rows import HotLine

#: Half the width of an interval that holds 95 % of what sampling shows, in standard deviations.
_SIGMAS = 1.96


def sampling_error(share: float, samples: float) -> float:
    """Half the width of the 95 % interval of a share (0..1) of so many samples (binomial, normal approximation)."""
    return _SIGMAS * math.sqrt(max(0.0, share * (1.0 - share)) / max(1.0, samples))


class HotFunction(NamedTuple):
    """A function of the user's code and its hottest line; the share is of the samples in question."""

    place: Place
    share: float  # of the function
    samples: int
    library: Place | None = None  # what it is in, where a library that the line calls owns the loop
    maker: Place | None = None  # the library's own line that the DataLoader calls, which leads there

    @property
    def error(self) -> float:
        """How far off its share may be."""
        return sampling_error(self.share, self.samples / self.share) if self.share else 0.0


def hottest_function(lines: Iterable[HotLine]) -> HotFunction | None:
    """The function with most of these lines' samples, at its hottest line; None without any.

    Samples of the same line in several processes add up.
    """
    samples: dict[tuple[str, str], int] = {}
    best_line: dict[tuple[str, str], HotLine] = {}
    total = 0
    for line in lines:
        key = (line.place.file, line.place.function)
        samples[key] = samples.get(key, 0) + line.samples
        if key not in best_line or line.samples > best_line[key].samples:
            best_line[key] = line
        total = max(total, line.total)
    if not samples:
        return None
    key = max(samples, key=samples.__getitem__)
    return HotFunction(best_line[key].place, samples[key] / total, samples[key])


def hottest_place(placed: Iterable[tuple[Place | None, int]]) -> HotFunction | None:
    """Like ``hottest_function``, from (place, samples); shares are of all samples, including those without a place."""
    counts: Counter[Place | None] = Counter()
    for place, count in placed:
        counts[place] += count
    total = counts.total()
    return hottest_function(HotLine(place, n / total, n, total) for place, n in counts.items() if place is not None)


def merged_lines(groups: Iterable[Sequence[HotLine]]) -> list[HotLine]:
    """Hot lines of several processes as one list, most samples first."""
    counts: dict[Place, int] = {}
    total = 0
    for lines in groups:
        total += lines[0].total if lines else 0
        for line in lines:
            counts[line.place] = counts.get(line.place, 0) + line.samples
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return [HotLine(place, n / total, n, total) for place, n in ordered]
