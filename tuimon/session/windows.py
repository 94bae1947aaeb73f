"""Sliding windows over records, histories, and the statistics they share."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

#: The time that "recent" figures cover, in seconds.
WINDOW_S = 30.0
#: Values in a history: half an hour of windows of 1 s.
HISTORY_LIMIT = 1800
#: So many processes hold histories in full; more of them share the room of these.
_IN_FULL = 2
#: Half the width of an interval that holds 95 % of what sampling shows, in standard deviations.
_SIGMAS = 1.96


class Timed(Protocol):
    """A record dated by one moment, of a window by its end, in seconds of the records' clock."""

    @property
    def t(self) -> float: ...  # noqa: D102


class Windowed(Timed, Protocol):
    """A record of a window."""

    @property
    def window_s(self) -> float: ...  # noqa: D102


class Span(NamedTuple):
    """A stretch of the run, in seconds of the records' clock."""

    begin_s: float = -math.inf
    end_s: float = math.inf

    def holds(self, record: Windowed) -> bool:
        """True if a window begins in it: the first may not hold what was before, the last may end after it."""
        return self.begin_s <= record.t - record.window_s < self.end_s


#: In which nothing lies.
NEVER = Span(math.inf, -math.inf)
R = TypeVar("R", bound=Timed)
T = TypeVar("T")


def shared_limit(limit: int, least: int, processes: int) -> int:
    """How long a history of each process is where one alone has at most ``limit`` values: no shorter than ``least``."""
    return max(least, limit * _IN_FULL // max(_IN_FULL, processes))


def new_history() -> deque[T]:
    """An empty history: one value a record, oldest first, bounded."""
    return deque(maxlen=HISTORY_LIMIT)


class Window(Generic[R]):
    """The records of the last ``span_s`` seconds, oldest first; bounded by ``limit`` records."""

    def __init__(self, span_s: float = WINDOW_S, limit: int = 512) -> None:
        self.span_s = span_s
        self.records: list[R] = []  # an empty deque takes 0.7 kB, and 64 ranks have hundreds of them
        self._limit = limit

    def append(self, record: R) -> None:
        """Append a record and drop those that have left the window."""
        self.records.append(record)
        if len(self.records) > self._limit:
            del self.records[: -self._limit]
        self.expire(record.t)

    def expire(self, now_s: float) -> None:
        """Drop records older than the span."""
        since_s = now_s - self.span_s
        gone = 0
        for record in self.records:
            if record.t >= since_s:
                break
            gone += 1
        if gone:
            del self.records[:gone]

    def __len__(self) -> int:
        return len(self.records)


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
