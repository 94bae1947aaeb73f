"""A labelled stretch of a thread's time, from one marker to the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tuimon.agent.ring.layout import Marker


class Stretch(NamedTuple):
    """The time from one marker of a thread to the next; empty at the first marker."""

    label: str  # a phase, or "between"
    begin_ns: int
    end: Marker
    opened: Marker | None  # the begin marker of the pair that ``end`` closes
    nested: bool  # ``end`` lies within a pair of its own kind, whose boundaries count instead of its own
    evaluated: bool  # ``end`` proves that the batch before it was evaluated: no backward has used it
    cut: int  # updates (and tuimon.step() calls) whose step had ended by ``end``

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self.end.time_ns


#: A third of the time of ``Stretch(...)``: one is made of every marker.
stretch_of: Callable[[tuple[object, ...]], Stretch] = partial(tuple.__new__, Stretch)
