"""The definition of a source: something outside, read on a thread of its own, turned into Records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tuimon.records import Record


class Source(Protocol):
    """Reads one stream. ``read`` is called on the source's own thread, ``period_s`` apart, until ``close``."""

    #: for people, and for Notice.source: "markers", "stacks", "gpu", "processes", "log"
    name: str
    #: seconds between two calls of ``read``; may change between calls
    period_s: float

    def read(self) -> Iterable[Record]:
        """The records that are due now; may be none. Raises Done when there will be no more (end of a log)."""
        ...

    def close(self) -> None:
        """Let go of whatever is held; called once, from the same thread, after the last ``read``."""
        ...


class Done(Exception):
    """A source has reached its end."""
