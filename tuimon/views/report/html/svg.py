"""Charts of the HTML report as SVG paths: values in, the path's ``d`` out; x runs from 0 to ``WIDTH``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

WIDTH, HEIGHT = 1000, 100
#: Values drawn at most, so that the page of a long run stays small.
POINTS = 240

Row = tuple[float, ...]


def decimated(values: Sequence[Row | None], most: int = POINTS) -> list[Row | None]:
    """At most so many rows: means of neighbours, None where none of them was measured."""
    if len(values) <= most:
        return list(values)
    edges = [len(values) * i // most for i in range(most + 1)]
    return [_mean(values[start:end]) for start, end in pairwise(edges)]


def top_of(rows: Sequence[Row | None]) -> float:
    """The chart's upper end: the greatest sum, unless a few outliers would flatten all the rest; 0 without values."""
    sums = sorted(sum(row) for row in rows if row is not None)
    if not sums:
        return 0.0
    return min(sums[-1], 1.5 * sums[int(0.95 * (len(sums) - 1))]) or sums[-1]


def bars(rows: Sequence[Row | None], part: int, top: float) -> str:
    """One part of stacked bars; what is above ``top`` is cut."""
    if top <= 0:
        return ""
    width = WIDTH / len(rows)
    boxes = []
    for i, row in enumerate(rows):
        if row is None:
            continue
        low, high = min(sum(row[:part]), top), min(sum(row[: part + 1]), top)
        if high > low:
            above, below = (HEIGHT * (1 - each / top) for each in (high, low))  # both rounded as the neighbour's are
            boxes.append(f"M{i * width:.1f} {above:.1f}h{width:.1f}V{below:.1f}h{-width:.1f}z")
    return "".join(boxes)


def curve(values: Sequence[float | None], top: float = 1.0) -> str:
    """A line through the values, interrupted where one is missing."""
    rows = decimated([None if value is None else (value,) for value in values])
    width = WIDTH / max(1, len(rows))
    path, drawing = [], False
    for i, row in enumerate(rows):
        if row is None:
            drawing = False
            continue
        y = HEIGHT * (1 - min(max(row[0] / top, 0.0), 1.0))
        path.append(f"L{(i + 0.5) * width:.1f} {y:.1f}" if drawing else f"M{i * width:.1f} {y:.1f}h{width / 2:.1f}")
        drawing = True
    return "".join(path)


def _mean(rows: Sequence[Row | None]) -> Row | None:
    known = [row for row in rows if row is not None]
    return tuple(sum(column) / len(known) for column in zip(*known, strict=True)) if known else None
