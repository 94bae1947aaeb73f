"""The course of a whole run: sums over stretches of it, oldest first, in bounded memory."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tuimon.records import BETWEEN, Steps
from tuimon.session.steps.held_steps import HeldSteps
from tuimon.session.windows import shared_limit

#: Most stretches that are kept; when they are reached, each two neighbours become one. A minute has one a second.
LIMIT = 480
#: Stretches that a process among many keeps at least.
_LEAST = 48


class Course:
    """Sums over equally many windows each, of a fixed number of columns.

    With a limit of 4, windows of 1 2 3 4 become stretches of 3 7; then 5 and 6 become one of 11, and so on.
    """

    def __init__(self, columns: int, limit: int = LIMIT) -> None:
        """``columns``: how many values a window has, beside its beginning, its end and the number of its first step."""
        self._row = struct.Struct(f"{3 + columns}d")
        self.limit = limit
        self._windows_each = 1
        self._rows = bytearray()  # packed: a list of floats takes four times as much
        self._open: tuple[float, ...] | None = None
        self._in_open = 0

    def add_row(self, row: tuple[float, ...]) -> None:
        """Add a window as ``rows`` has it, later than all before."""
        self._open = row if self._open is None else _added(self._open, row)
        self._in_open += 1
        if self._in_open < self._windows_each:
            return
        self._rows += self._row.pack(*self._open)
        self._open, self._in_open = None, 0
        while len(self._rows) >= self.limit * self._row.size:
            self._join_pairs()

    def _join_pairs(self) -> None:
        """Join neighbouring stretches; of an odd number, left by a limit that fell, the last begins the next one."""
        rows = list(self._row.iter_unpack(self._rows))
        if len(rows) % 2:
            last = rows.pop()
            self._open = last if self._open is None else _added(last, self._open)
            self._in_open += self._windows_each
        self._rows = bytearray().join(
            self._row.pack(*_added(*pair)) for pair in zip(rows[::2], rows[1::2], strict=True)
        )
        self._windows_each *= 2

    def rows(self) -> list[tuple[float, ...]]:
        """All stretches: beginning and end in s, number of the first step, sums."""
        rows = list(self._row.iter_unpack(self._rows))
        return [*rows, self._open] if self._open is not None else rows


def _added(one: tuple[float, ...], later: tuple[float, ...]) -> tuple[float, ...]:
    return (one[0], later[1], one[2], *(a + b for a, b in zip(one[3:], later[3:], strict=True)))


class StepStretch(NamedTuple):
    """A stretch of a run: the steps that ended in it, sums in ns."""

    begin_s: float
    end_s: float
    first_step: float
    steps: float  # that the times are of (``Steps.usual``)
    span_s: float  # of wall time, without what the profiler took
    total_ns: float
    data_ns: float
    forward_ns: float
    backward_ns: float
    optimizer_ns: float
    other_ns: float
    between_ns: float  # which samples divide among the phases
    eval_ns: float  # beside the steps
    waited_ns: float  # of ``total_ns``, in which a computing thread waited for a core
    cpu_ns: float = 0.0  # that all threads of the process used meanwhile; 0: not measured


#: The phases of a row, as a StepStretch has them.
_PHASES = {
    name: place for place, name in enumerate(("data", "forward", "backward", "optimizer", "other", BETWEEN, "eval"))
}


def stretch_of(record: HeldSteps) -> StepStretch:
    """A window as a stretch, without what its threads waited and used."""
    return StepStretch._make(_row_of(record, 0.0, 0.0))


def _row_of(record: Steps | HeldSteps, waited_ratio: float, cpu_ratio: float) -> tuple[float, ...]:
    phases_ns = [0.0] * len(_PHASES)
    for phase in record.phases:
        place = _PHASES.get(phase.name)
        if place is not None:
            phases_ns[place] = float(phase.total_ns)
    t, window_s, total_ns = record.t, record.window_s, float(record.total_ns)
    return (
        t - window_s,
        t,
        float(record.first_index),
        float(record.usual),
        max(0.0, window_s - record.slowed_ns / 1e9),
        total_ns,
        *phases_ns,
        waited_ratio * total_ns,
        cpu_ratio * total_ns,
    )


class StepCourse:
    """The course of one process's steps, from its first whole step on."""

    def __init__(self) -> None:
        self._course = Course(len(StepStretch._fields) - 3)

    def add_window(self, record: Steps, waited_ratio: float, cpu_ratio: float = 0.0) -> None:
        """Fold a window."""
        self._course.add_row(_row_of(record, waited_ratio, cpu_ratio))

    def share_room(self, processes: int) -> None:
        """So many processes have a course: from the next window on each is shorter."""
        self._course.limit = shared_limit(LIMIT, _LEAST, processes)

    def stretches(self) -> list[StepStretch]:
        """All of it, the winding down after the last step left out."""
        return without_end([StepStretch(*row) for row in self._course.rows()])


def without_end(stretches: list[StepStretch]) -> list[StepStretch]:
    """The stretches up to the last step; later ones are left out."""
    while stretches and not stretches[-1].steps:
        stretches.pop()
    return stretches
