"""The pauses of the garbage collector in a window."""

from __future__ import annotations

from typing import NamedTuple

#: A longer pause is no pause but damage, in ns.
_LONGEST_NS = 3_600_000_000_000


class Pauses(NamedTuple):
    """``total_ns`` is None where the process does not report its collections."""

    total_ns: int | None
    number: int
    longest_ns: int


class GcPauses:
    """The pauses of one process, as its markers report them."""

    def __init__(self, reported: bool) -> None:
        self._reported = reported
        self._lengths_ns: list[int] = []

    def add_pause(self, length_ns: int) -> None:
        """One collection."""
        self._reported = True
        if length_ns <= _LONGEST_NS:
            self._lengths_ns.append(length_ns)

    def take_pauses(self) -> Pauses:
        """The pauses since the last call."""
        lengths, self._lengths_ns = self._lengths_ns, []
        return Pauses(sum(lengths) if self._reported else None, len(lengths), max(lengths, default=0))
