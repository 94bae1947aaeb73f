"""Charts of the screen and of the page: one time axis, values fitted to their room, the upper end of their scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from tuimon.session.session import Session

Value = TypeVar("Value")
#: Most slots of a time axis: windows while the run goes on, later equal parts of the run.
_LATEST, _WHOLE = 60, 120


class Axis(NamedTuple):
    """The time that all charts of a screen show, in slots of equal length."""

    begin_s: float
    slot_s: float
    slots: int

    @property
    def span_s(self) -> float:
        return self.slots * self.slot_s


def axis_of(session: Session) -> Axis:
    """From the first step on, the latest windows or, once the run has ended, all of it."""
    window_s = session.interval_s
    loop = session.step_stats[session.trainer()].in_loop()
    begin_s = loop.begin_s if loop.steps else session.start_s
    if session.exit is not None:
        span_s = max((loop.end_s if loop.steps else session.now_s) - begin_s, window_s)
        slots = min(max(round(span_s / window_s), 1), _WHOLE)
        return Axis(begin_s, span_s / slots, slots)
    end = ceil(session.now_s / window_s)  # slots stay where they are while time goes on
    begin = max(min(floor(begin_s / window_s), end - 1), end - _LATEST)
    return Axis(begin * window_s, window_s, end - begin)


def on_axis(
    spans: Sequence[tuple[float, float]],
    values: Sequence[Value | None],
    axis: Axis,
    mean: Callable[[Sequence[Value]], Value],
) -> tuple[Value | None, ...]:
    """The mean of the values in each slot, by their beginnings and ends; None if there is none.

    A value counts in the slots whose middle its span covers, or in the one that it lies in. The last one covers two
    more of its length: the next is due.
    """
    found: list[list[Value]] = [[] for _ in range(axis.slots)]
    for left, (begin_s, end_s), value in zip(range(len(spans) - 1, -1, -1), spans, values, strict=True):
        until_s = end_s if left else end_s + 2 * (end_s - begin_s)
        first, end = (ceil((each_s - axis.begin_s) / axis.slot_s - 0.5) for each_s in (begin_s, until_s))
        if first == end:
            first = floor(((begin_s + end_s) / 2 - axis.begin_s) / axis.slot_s)
            end = first + 1
        if value is not None:
            for slot in range(max(first, 0), min(end, axis.slots)):
                found[slot].append(value)
    return tuple([mean(values) if values else None for values in found])


def spread(values: Sequence[Value | None], room: int, mean: Callable[[Sequence[Value]], Value]) -> list[Value | None]:
    """Exactly ``room`` values: few are repeated, many are merged.

    Example: ``[1, 2]`` becomes ``[1, 1, 2, 2]`` in four columns.
    """
    count = len(values)
    if count <= room:
        return [values[x * count // room] for x in range(room)] if count else [None] * room
    merged: list[Value | None] = []
    for x in range(room):
        known = [value for value in values[x * count // room : (x + 1) * count // room] if value is not None]
        merged.append(mean(known) if known else None)
    return merged


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean of known values."""
    return sum(values) / len(values)


def means(values: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The mean of each part of known values."""
    return tuple([mean(parts) for parts in zip(*values, strict=True)])


def ceiling(values: Sequence[float | None]) -> float:
    """A stable upper bound for a chart from 0: above all values but rare outliers (above four times the median)."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return 1.0
    median = known[len(known) // 2]
    top = max(value for value in known if value <= 4 * median) if median > 0 else known[-1]
    if top <= 0:
        return 1.0
    scale = 10.0 ** floor(log10(top * 1.05))
    return next(nice * scale for nice in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12) if top * 1.05 <= nice * scale)
