"""Charts of the screen and of the page: values fitted to their room, and the upper end of their scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Value = TypeVar("Value")


def spread(
    values: Sequence[Value | None], room: int, mean: Callable[[Sequence[Value]], Value], *, whole: bool = False
) -> list[Value | None]:
    """Exactly ``room`` values: few are repeated; of many, the newest are kept, or all are merged (``whole``).

    Example: ``[1, 2]`` becomes ``[1, 1, 2, 2]`` in four columns.
    """
    count = len(values)
    if count > room and not whole:
        return list(values[count - room :])
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


def ceiling(values: Sequence[float | None]) -> float:
    """A stable upper bound for a chart from 0: above all values but rare outliers (above four times the median)."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return 1.0
    median = known[len(known) // 2]
    top = max(value for value in known if value <= 4 * median) if median > 0 else known[-1]
    return _round_up(top * 1.05) if top > 0 else 1.0


def _round_up(value: float) -> float:
    scale = 1.0
    while value >= scale * 10:
        scale *= 10
    while value < scale:
        scale /= 10
    for nice in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10):
        if value <= nice * scale:
            return nice * scale
    return 10 * scale
