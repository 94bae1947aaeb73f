"""Sliding windows over records, histories, and the statistics they share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from tuimon.records import Record

#: What "recent" figures cover, in seconds.
WINDOW_S = 30.0
#: Values in a history: half an hour of windows of 1 s.
_HISTORY_LIMIT = 1800

R = TypeVar("R", bound=Record)
T = TypeVar("T")


def new_history() -> deque[T]:
    """An empty history: one value a record, oldest first, bounded."""
    return deque(maxlen=_HISTORY_LIMIT)


class Window(Generic[R]):
    """The records of the last ``span_s`` seconds, oldest first; bounded by ``limit`` records."""

    def __init__(self, span_s: float = WINDOW_S, limit: int = 512) -> None:
        self.span_s = span_s
        self.records: deque[R] = deque(maxlen=limit)

    def append(self, record: R) -> None:
        """Append a record and drop those that have left the window."""
        self.records.append(record)
        self.expire(record.t)

    def expire(self, now_s: float) -> None:
        """Drop records older than the span."""
        while self.records and self.records[0].t < now_s - self.span_s:
            self.records.popleft()

    def __len__(self) -> int:
        return len(self.records)


def weighted_median(values: Iterable[tuple[float, int]]) -> float | None:
    """The lower median of (value, weight) pairs; None without any."""
    ordered = sorted(values)
    half = sum(weight for _, weight in ordered) / 2
    for value, weight in ordered:
        half -= weight
        if half <= 0:
            return value
    return None
