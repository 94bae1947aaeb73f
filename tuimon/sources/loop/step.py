"""A step of a training loop, or a piece of one, and the labelled stretches of time that it consists of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field

#: Label of time in which boundaries were only counted.
COUNTED = "counted"


class Step(Struct, gc=False):
    """Time per phase, which adds up to ``total_ns``; evaluation is left out."""

    end_ns: int = 0
    index: int = 0  # its number, or that of the first of many, once it has ended
    count: int = 1  # number of steps; more than one only if their boundaries were only counted
    total_ns: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    backwards: int = 0
    updates: int = 0
    fetched: bool = False  # holds a fetch that trained
    whole: bool = True  # False: it began before the first marker, so its length is unknown
    timed: bool = True  # False: some of its boundaries were only counted, so its phases are unknown
    slowed: bool = False  # tuimon's trace or memory history slowed it or held it up, or the process was stopped
    traced_ns: int = 0  # when a trace began, if this is its first step
    after_fetch: bool = False  # the boundary at its end is a fetch
    marked: bool = False  # tuimon.step() has ended it

    @property
    def is_step(self) -> bool:
        """True if this is a step; without a known beginning it must have a backward or ``tuimon.step()``.

        Without a DataLoader nothing marks the beginning of a loop's first step.
        """
        return self.whole or self.backwards > 0 or self.marked

    @property
    def only_counted(self) -> bool:
        """True if all of its time passed while boundaries were only counted."""
        return self.phases.keys() == {COUNTED}

    @property
    def usual(self) -> bool:
        """True if its length is typical of steps."""
        return self.whole and not self.slowed

    def add_time(self, label: str, duration_ns: int) -> None:
        """Add time to a phase; negative to take it back."""
        self.phases[label] = self.phases.get(label, 0) + duration_ns
        self.total_ns += duration_ns

    def absorb(self, later: Step) -> None:
        """Append the piece that follows."""
        phases = self.phases
        for label, duration_ns in later.phases.items():
            phases[label] = phases.get(label, 0) + duration_ns
        self.total_ns += later.total_ns
        self.end_ns = max(self.end_ns, later.end_ns)
        self.backwards += later.backwards
        self.updates += later.updates
        self.fetched |= later.fetched
        self.whole &= later.whole
        self.timed &= later.timed
        self.slowed |= later.slowed
        self.traced_ns = self.traced_ns or later.traced_ns
        self.after_fetch = later.after_fetch
        self.marked |= later.marked


class MarkedStretch(NamedTuple):
    """The time from one marker of a thread to the next, which is a boundary of the loop; empty at the first marker."""

    label: str  # a phase, or "between"
    begin_ns: int
    end_ns: int
    kind: int  # of the marker that ends it; its flag and value
    flag: int
    value: int
    opened: MarkedStretch | None  # the stretch before the pair of markers that this stretch closes
    nested: bool  # True if it ends within a pair of the same kind, whose boundaries count instead
    evaluated: bool  # True if its end proves that the batch before was evaluated: no backward has used it
    cut: int  # pieces (``steps.py``) that had ended by then


#: Makes a MarkedStretch in a third of the time of ``MarkedStretch(...)``: every marker makes one.
stretch_of: Callable[[tuple[object, ...]], MarkedStretch] = partial(tuple.__new__, MarkedStretch)
