"""Sums up the pauses of the garbage collector between two windows."""

from __future__ import annotations

from typing import NamedTuple


class Pauses(NamedTuple):
    """``total_ns`` is None where the process does not tell of its collections."""

    total_ns: int | None
    number: int
    longest_ns: int


class GcPauses:
    """The pauses of one process, as its markers tell them."""

    def __init__(self, told: bool) -> None:
        self._told = told
        self._lengths_ns: list[int] = []

    def add(self, length_ns: int) -> None:
        """One collection."""
        self._told = True
        self._lengths_ns.append(length_ns)

    def take(self) -> Pauses:
        """Those since the last call."""
        lengths, self._lengths_ns = self._lengths_ns, []
        return Pauses(sum(lengths) if self._told else None, len(lengths), max(lengths, default=0))
