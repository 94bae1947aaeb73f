"""The beginning and the latest part of a run, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TypeVar

from tuimon.session.steps import STACKED

#: Windows compared, about a minute each way: the first after warm-up, and the latest.
SPAN_WINDOWS = 60
WARMUP_WINDOWS = 10
#: Windows below which a run is too short to compare its end with its beginning.
COMPARABLE_WINDOWS = WARMUP_WINDOWS + 3 * SPAN_WINDOWS // 2

T = TypeVar("T")


def early_windows(history: Sequence[T | None]) -> list[T]:
    """What was measured in the first windows after warm-up."""
    return [value for value in history[WARMUP_WINDOWS : WARMUP_WINDOWS + SPAN_WINDOWS] if value is not None]


def late_windows(history: Sequence[T | None]) -> list[T]:
    """What was measured in the latest windows; none of them among the early ones."""
    return [value for value in history[WARMUP_WINDOWS + SPAN_WINDOWS :][-SPAN_WINDOWS:] if value is not None]


def most_grown(phase_history: Sequence[tuple[float, ...] | None]) -> tuple[str, float] | None:
    """The phase whose time a step has grown most, and by how many ms; None without both ends of the run."""
    early = early_windows(phase_history)
    late = [parts for parts in phase_history[-SPAN_WINDOWS:] if parts is not None]
    if not early or not late:
        return None
    grown = [median(x) - median(y) for x, y in zip(zip(*late, strict=True), zip(*early, strict=True), strict=True)]
    most = max(range(len(grown)), key=grown.__getitem__)
    return STACKED[most], grown[most]
