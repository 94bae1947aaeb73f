"""Records of several growing logs in the order of their moments."""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import itemgetter
from typing import TypeAlias

from tuimon.records import Record
from tuimon.sources.log.joined.node_log import NodeLog

#: Records of a log that wait to be merged, at least: with fewer, more of it is read.
_WAITING = 100

#: The latest moment in a log so far, on the wall clock that all logs share; the log, and the record that is next.
Next: TypeAlias = tuple[float, NodeLog, Record]


class Merge:
    """A log that has come to its end for now holds up no other: what it writes later comes later.

    Of logs with records at 1 3 5, at 2 4 and, up to its end, at 6, those to 4 are merged; then the second is read on.
    """

    def __init__(self) -> None:
        self._logs: list[NodeLog] = []

    def add_logs(self, logs: Iterable[NodeLog]) -> None:
        """Merge these as well."""
        self._logs.extend(logs)

    def refill(self) -> None:
        """See what has been appended to the logs that were at their ends."""
        for log in self._logs:
            log.at_end = False

    def merge(self) -> list[Next]:
        """The oldest records, in order, each to be popped from its log; empty where all logs are at their ends."""
        for log in self._logs:
            if not log.at_end:
                log.read_ahead(_WAITING)
        until_unix_s = min((log.read_unix_s for log in self._logs if not log.at_end), default=math.inf)
        merged = [each for log in self._logs for each in _until(log, until_unix_s)]
        merged.sort(key=itemgetter(0))  # stable: records of one moment stay in the order of their logs
        return merged


def _until(log: NodeLog, until_unix_s: float) -> list[Next]:
    """The records of a log that wait, up to a moment; one that is dated earlier than those before it follows them."""
    latest_s, shift_s = log.latest_s, log.shift_s
    found: list[Next] = []
    for record in log.waiting:
        latest_s = record.t if record.t > latest_s else latest_s
        at_unix_s = latest_s + shift_s
        if at_unix_s > until_unix_s:
            break
        found.append((at_unix_s, log, record))
    return found
