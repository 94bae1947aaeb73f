"""Records of several growing logs in the order of their moments."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from tuimon.records import Record
from tuimon.sources.log.joined.node_log import NodeLog


class Next(NamedTuple):
    """A record, its moment on the wall clock that all logs share, and its log; ``order`` is of the log alone."""

    at_unix_s: float
    order: int
    log: NodeLog
    record: Record


class Merge:
    """A log that has come to its end for now holds up no other: what it writes later comes later."""

    def __init__(self) -> None:
        self._heads: list[Next] = []  # a heap: of each log at most one
        self._resting: list[tuple[int, NodeLog]] = []
        self._count = 0

    def add_logs(self, logs: Iterable[NodeLog]) -> None:
        """Merge these as well."""
        for log in logs:
            self._resting.append((self._count, log))
            self._count += 1

    def refill(self) -> None:
        """See what has been appended to the logs that were at their ends."""
        resting, self._resting = self._resting, []
        for order, log in resting:
            self._advance(order, log)

    @property
    def head(self) -> Next | None:
        """The oldest record at hand; None where all logs are at their ends."""
        return self._heads[0] if self._heads else None

    def pop(self) -> Next:
        """Take the oldest record."""
        found = heapq.heappop(self._heads)
        self._advance(found.order, found.log)
        return found

    def _advance(self, order: int, log: NodeLog) -> None:
        record = log.next_record()
        if record is None:
            self._resting.append((order, log))
        else:
            heapq.heappush(self._heads, Next(record.t + log.shift_s, order, log, record))
