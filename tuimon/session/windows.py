"""Sliding windows over Records, and the few statistics that need them."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from tuimon.records import Record

R = TypeVar("R", bound=Record)


class Window(Generic[R]):
    """The records of the last ``span_s`` seconds, oldest first; bounded by ``limit`` records."""

    def __init__(self, span_s: float, limit: int = 512) -> None:
        self.span_s = span_s
        self.records: deque[R] = deque(maxlen=limit)

    def append(self, record: R) -> None:
        """Append a record and forget those that have left the window."""
        self.records.append(record)
        self.expire(record.t)

    def expire(self, now_s: float) -> None:
        """Forget records older than the span."""
        while self.records and self.records[0].t < now_s - self.span_s:
            self.records.popleft()

    def __len__(self) -> int:
        return len(self.records)
