"""The pictures of the page: step time and phases; curves; the call tree as boxes.

A path's ``d`` runs from 0 to ``WIDTH`` in x and to ``HEIGHT`` in y.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tuimon.session.session import SessionView
from tuimon.session.stacks.call_tree import CallTree
from tuimon.session.stacks.samples import Samples
from tuimon.session.steps import STACKED, StepStretch
from tuimon.views.format import count, percent, place

#: Values of the chart at most.
MOST = 480
WIDTH, HEIGHT = 1000, 100
#: Values drawn at most, so that the page of a long run stays small.
POINTS = 240
Row = tuple[float, ...]


def chart_of(run: SessionView, pid: int) -> dict[str, Any] | None:
    """The chart that the template draws; None before a step."""
    stats, start_s = run.session.step_stats.get(pid), run.session.start_s
    stretches = stats.stretches() if stats is not None else []
    if not stretches or start_s is None:
        return None
    span_s = stretches[-1].end_s - start_s
    rows = rows_of(stretches, start_s, run.between_parts(pid))
    top_ms = top_of(rows)
    if not top_ms:
        return None
    return {
        "top_ms": top_ms,
        "cut": any(sum(row) > top_ms * 1.001 for row in rows if row is not None),
        "span_s": span_s,
        "parts": [(name, bars(rows, part, top_ms)) for part, name in enumerate(STACKED)],
    }


def rows_of(stretches: Sequence[StepStretch], start_s: float, between: Sequence[float]) -> list[Row | None]:
    """The mean step in ms by ``STACKED``, evenly spaced from a moment on; None where no step ended.

    ``between``: how the time that markers cannot split is divided into STACKED.
    """
    ends_s, shortest_s = [each.end_s for each in stretches], min(each.end_s - each.begin_s for each in stretches)
    span_s = ends_s[-1] - start_s
    number = max(1, min(MOST, round(span_s / max(shortest_s, span_s / MOST))))
    middles_s = (start_s + (at + 0.5) * span_s / number for at in range(number))
    found = [(t, stretches[bisect_right(ends_s, t)]) for t in middles_s]
    return [each.stacked_ms(between) if each.begin_s <= t else None for t, each in found]


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


_LEAST_SHARE = 0.004
_WIDE_SHARE = 0.04
_DEPTH = 32
_BOXES = 1500


class FlameBox(NamedTuple):
    """One function; ``left`` and ``width`` as shares (0..1) of all samples, ``row`` from 0."""

    row: int
    left: float
    width: float
    label: str
    title: str
    is_wide: bool  # so that its label fits, and it can be reached by the keyboard
    phase: str
    user: bool


def trees(run: SessionView, pid: int) -> list[tuple[str, CallTree]]:
    """The call trees of a process's training thread and of its DataLoader workers together, each with its title.

    Without samples there is no tree.
    """
    workers = [worker.pid for worker in run.workers(pid)]
    found = (
        ("What the training thread does", _tree(run, [pid])),
        ("What the DataLoader workers do", _tree(run, workers)),
    )
    return [(title, tree) for title, tree in found if tree.samples]


def _tree(run: SessionView, pids: Sequence[int]) -> CallTree:
    first = ((pid, next(iter(run.sampled_tids(pid)), None)) for pid in pids)
    return Samples.joined(run.samples(pid, tid) for pid, tid in first).tree()


def boxes_of(tree: CallTree) -> list[FlameBox]:
    """The boxes that are wide enough to see, parents first."""
    boxes: list[FlameBox] = []
    waiting = [(tree.root, 0.0)]
    while waiting and len(boxes) < _BOXES:
        parent, left = waiting.pop(0)
        for node in parent.ordered():
            share = tree.share(node.total)
            if share >= _LEAST_SHARE and node.depth <= _DEPTH:
                at = node.place()
                title = f"{node.function} ({place(at.file, at.line)}): {percent(share)}, {count(node.total)} samples"
                label, is_wide = f"{node.function} {percent(share)}", share >= _WIDE_SHARE
                boxes.append(
                    FlameBox(node.depth - 1, left, share, label, title, is_wide, node.phase() or "other", node.user)
                )
                waiting.append((node, left))
            left += share
    return boxes
