"""What the machine allows: how much stretches of one run differ, and how often a judge who knew that would find 3 %.

A run has its own speed at each moment: others share the machine, and clocks follow heat. What stretches of one program
differ by, no statistics can take for a change of the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import pstdev

from tuimon.records import Record, Steps

#: Seconds between the beginnings of stretches.
_STRIDE_S = 5.0
#: Of a run, seconds that are left out at its beginning: warm-up.
_WARMUP_S = 5.0


def ratios(records: Iterable[Record], seconds: float) -> list[float]:
    """Logarithms of the ratios of mean step times, of all pairs of stretches of that length that do not overlap."""
    windows = [(each.t, each.usual, each.total_ns) for each in records if isinstance(each, Steps) and each.usual]
    if not windows:
        return []
    begin_s, end_s = windows[0][0] + _WARMUP_S, windows[-1][0]
    starts = [begin_s + n * _STRIDE_S for n in range(1 + max(0, int((end_s - seconds - begin_s) / _STRIDE_S)))]
    means = {start: _mean_ns([row for row in windows if start <= row[0] < start + seconds]) for start in starts}
    pairs = [(one, other) for one in starts for other in starts if abs(one - other) >= seconds]
    return [math.log(means[other] / means[one]) for one, other in pairs if means[one] and means[other]]


def found_at_best(same: Sequence[float], slower: float, error: float) -> float:
    """How many (0..1) of pairs like these, but slower, exceed what all but ``error`` of these stay below."""
    limit = sorted(map(abs, same))[math.ceil((1 - error) * len(same)) - 1]
    return sum(ratio + math.log(slower) > limit for ratio in same) / len(same)


def floor_line(name: str, records: Iterable[Record], seconds: float, slower: float, error: float) -> str:
    """It in words."""
    same = ratios(records, seconds)
    if not same:
        return f"{name}: too short for two stretches of {seconds:.0f} s"
    best = found_at_best(same, slower, error)
    return (
        f"{name}: stretches of {seconds:.0f} s of one run differ by {100 * pstdev(same):.1f} %; "
        f"a judge who knew that would find {100 * slower - 100:.0f} % in {100 * best:.0f} % of pairs"
    )


def _mean_ns(windows: Sequence[tuple[float, int, int]]) -> float:
    steps = sum(count for _, count, _ in windows)
    return sum(total_ns for _, _, total_ns in windows) / steps if steps else 0.0
