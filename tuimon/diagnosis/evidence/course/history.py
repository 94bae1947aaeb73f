"""The beginning and the latest part of a run, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TypeVar

from msgspec import Struct

from tuimon.records import Place
from tuimon.session.rows import HotLine
from tuimon.session.steps.history import STACKED

#: Windows with a step that are left out at the beginning: caches and the loaders' queues fill.
WARMUP_WINDOWS = 2
#: Windows with a step below which a run is too short to compare its end with its beginning.
COMPARABLE_WINDOWS = WARMUP_WINDOWS + 16

T = TypeVar("T")


class GrownPhase(Struct, frozen=True, gc=False):
    """The phase whose time a step has grown most, in ms per step."""

    name: str
    before_ms: float
    now_ms: float


def steady_windows(history: Sequence[T | None]) -> list[T]:
    """The values of the windows with a step, after warm-up."""
    return [value for value in history if value is not None][WARMUP_WINDOWS:]


def first_and_last(values: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """The first and the last quarter."""
    quarter = len(values) // 4
    return values[:quarter], values[len(values) - quarter :]


def most_grown(phase_history: Sequence[tuple[float, ...] | None]) -> GrownPhase | None:
    """The phase that has grown most from the first to the last quarter of the run; None without these."""
    early, late = first_and_last(steady_windows(phase_history))
    return grown_between(early, late) if early else None


def grown_between(early: Sequence[tuple[float, ...]], late: Sequence[tuple[float, ...]]) -> GrownPhase:
    """The phase whose median differs most."""
    before = [median(parts) for parts in zip(*early, strict=True)]
    now = [median(parts) for parts in zip(*late, strict=True)]
    most = max(range(len(now)), key=lambda part: now[part] - before[part])
    return GrownPhase(STACKED[most], before[most], now[most])


def grown_line(early: Sequence[HotLine], late: Sequence[HotLine], phase: GrownPhase) -> Place | None:
    """The line that a step spends more time at than before, more than at any other; None without samples of both ends.

    ``early`` and ``late``: the lines of that phase. Most of the function's growth is at a line whose number may be any
    of a loop's, so functions are compared first.
    """
    if not early or not late:
        return None
    grown: dict[Place, float] = {}
    for lines, ms in ((early, -phase.before_ms), (late, phase.now_ms)):
        for line in lines:
            grown[line.place] = grown.get(line.place, 0.0) + line.share * ms
    functions: dict[tuple[str, str], float] = {}
    for place, ms in grown.items():
        functions[place.file, place.function] = functions.get((place.file, place.function), 0.0) + ms
    most = max(functions, key=functions.__getitem__)
    if functions[most] <= 0.0:
        return None
    return max((p for p in grown if (p.file, p.function) == most), key=grown.__getitem__)
