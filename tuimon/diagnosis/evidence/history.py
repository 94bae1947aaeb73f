"""The beginning and the latest part of a run, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

#: Windows compared, about a minute each way: the first after warm-up, and the latest.
SPAN_WINDOWS = 60
WARMUP_WINDOWS = 10
#: Windows below which a run's end says little about its course.
COMPARABLE_WINDOWS = WARMUP_WINDOWS + 3 * SPAN_WINDOWS // 2

T = TypeVar("T")


def early_windows(history: Sequence[T | None]) -> list[T]:
    """What was measured in the first windows after warm-up."""
    return [value for value in history[WARMUP_WINDOWS : WARMUP_WINDOWS + SPAN_WINDOWS] if value is not None]


def late_windows(history: Sequence[T | None]) -> list[T]:
    """What was measured in the latest windows; none of them among the early ones."""
    return [value for value in history[WARMUP_WINDOWS + SPAN_WINDOWS :][-SPAN_WINDOWS:] if value is not None]
