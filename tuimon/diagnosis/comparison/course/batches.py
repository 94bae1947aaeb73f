"""A run's stretches as batches of about equal time, each with at least one step whose time is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.session.course import StepStretch

#: Batches at most: so many show what depends on what over a minute and more, and resampling them takes 0.2 s.
MOST_BATCHES = 240
#: Columns of a stretch that are no sums: its beginning, its end, its first step.
_NO_SUMS = 3


class Batches(NamedTuple):
    """The steps that a run is judged by."""

    rows: tuple[StepStretch, ...]

    @property
    def steps(self) -> int:
        """How many steps they hold."""
        return round(sum(row.steps for row in self.rows))

    @property
    def seconds(self) -> float:
        """How long they lasted."""
        return sum(row.span_s for row in self.rows)

    def step_ms(self) -> list[float]:
        """The mean step of each batch."""
        return [step_ms(row) for row in self.rows]


def step_ms(row: StepStretch) -> float:
    """The mean step of a stretch with steps."""
    return row.total_ns / row.steps / 1e6


def batches(stretches: Sequence[StepStretch]) -> Batches:
    """Neighbours added up until they are as long as the longest of them, or a 240th of the run, and hold a timed step.

    So a log whose windows are 1 s long at first and 10 s later has batches of 10 s. What is left at the end over a
    whole batch is part of the last. Without a timed step there are no batches.
    """
    if not stretches:
        return Batches(())
    whole_s = sum(row.span_s for row in stretches)
    long_s = max(whole_s / MOST_BATCHES, *(row.span_s for row in stretches))
    found: list[StepStretch] = []
    for row in stretches:
        is_full = found and _is_timed(found[-1]) and found[-1].span_s >= 0.95 * long_s  # windows vary by some ms
        if found and not is_full:
            found[-1] = added(found[-1], row)
        else:
            found.append(row)
    if len(found) > 1 and (found[-1].span_s < 0.5 * long_s or not _is_timed(found[-1])):
        found[-2:] = [added(found[-2], found[-1])]
    return Batches(tuple(row for row in found if _is_timed(row)))


def _is_timed(row: StepStretch) -> bool:
    return row.steps > 0 and row.total_ns > 0


def added(one: StepStretch, later: StepStretch) -> StepStretch:
    """Two neighbours as one stretch."""
    sums = (a + b for a, b in zip(one[_NO_SUMS:], later[_NO_SUMS:], strict=True))
    return StepStretch(one.begin_s, later.end_s, one.first_step, *sums)
