"""The place of each pane: a pure function of the terminal's size and of what there is to show."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

#: Panes by importance: when rows are short, the last give way first.
IMPORTANCE = ("verdict", "phases", "loaders", "threads", "gpu", "output")
MIN_WIDTH, MIN_HEIGHT = 40, 10
NARROW_BELOW, WIDE_FROM = 100, 160
_FRAME = 2  # rows of a border
_UPPER_MOST = 44  # rows beyond which a chart gains nothing
_LEAST = {"phases": 8, "threads": 5, "gpu": 4, "output": 4, "loaders": 6}


class Box(NamedTuple):
    """A place on the screen, in cells."""

    x: int
    y: int
    width: int
    height: int


class WantedRows(NamedTuple):
    """How many rows of content each pane could fill; ``lines``: the panes with nothing to show but one line why."""

    phases: int
    threads: int
    gpu: int
    lines: frozenset[str] = frozenset()
    loaders: int = 1
    verdict: int = 3


def lay_out(
    width: int, height: int, shown: AbstractSet[str], wanted: WantedRows, zoomed: str | None = None
) -> dict[str, Box]:
    """Boxes of all that is visible: ``title``, ``verdict``, ``keys`` and the panes."""
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return {"small": Box(0, 0, width, height)}
    boxes = {"title": Box(0, 0, width, 1)}
    top = 1
    if "verdict" in shown:
        boxes["verdict"] = Box(0, top, width, wanted.verdict)
        top += wanted.verdict
    bottom = height
    if height >= 14:
        bottom -= 1
        boxes["keys"] = Box(0, bottom, width, 1)
    body = Box(0, top, width, bottom - top)
    panes = shown - {"verdict"}
    if zoomed:
        boxes[zoomed] = body
    elif width < NARROW_BELOW:
        boxes |= _stacked(body, panes, wanted)
    else:
        boxes |= _over_lines(body, panes, wanted)
    return boxes


def right_width(width: int) -> int:
    """Columns of the GPU and output panes, borders and all."""
    if width < NARROW_BELOW:
        return width
    return width - (width * 11 // 20 if width >= WIDE_FROM else width // 2)


def _over_lines(body: Box, panes: AbstractSet[str], wanted: WantedRows) -> dict[str, Box]:
    """Two columns; a pane of the right one with but a line to show stands below, as wide as the screen."""
    single = [name for name in ("gpu", "output") if name in panes and name in wanted.lines]
    others = panes - set(single)
    if not others or not single:
        return _columns(body, panes, wanted)
    lines = single[: max(body.height - _LEAST["phases"] - _LEAST["threads"], 0)]
    upper = body._replace(height=body.height - len(lines))
    below = {name: Box(body.x, upper.y + upper.height + at, body.width, 1) for at, name in enumerate(lines)}
    return _columns(upper, others, wanted) | below


def _columns(body: Box, panes: AbstractSet[str], wanted: WantedRows) -> dict[str, Box]:
    return _with_loaders(body, panes, wanted) if "loaders" in panes else _two_columns(body, panes, wanted)


def _with_loaders(body: Box, panes: AbstractSet[str], wanted: WantedRows) -> dict[str, Box]:
    """The loaders above the threads and as wide as these; without threads at the bottom."""
    others = panes - {"loaders"}
    if "threads" in others and body.height < _LEAST["phases"] + _LEAST["loaders"] + _LEAST["threads"]:
        others -= {"threads"}
    if not others or body.height < _LEAST["phases"] + _LEAST["loaders"]:
        return {"loaders": body}
    rows = min(wanted.loaders + _FRAME, max(_LEAST["loaders"], body.height // 3))
    upper = body._replace(height=max(body.height - rows, 1))
    rows = body.height - upper.height
    boxes = _two_columns(upper, others, wanted)
    column_width = boxes["phases"].width if body.width >= WIDE_FROM and "phases" in boxes else body.width
    threads = boxes.get("threads")
    top = threads.y if threads else upper.y + upper.height
    boxes["loaders"] = Box(body.x, top, column_width, rows)
    if threads:
        boxes["threads"] = threads._replace(y=threads.y + rows)
    for name in ("gpu", "output"):  # the right column of a wide screen goes on to the bottom
        box = boxes.get(name)
        if box is not None and box.x >= column_width and box.y + box.height == upper.y + upper.height:
            boxes[name] = box._replace(height=box.height + rows)
    return boxes


def _two_columns(body: Box, panes: AbstractSet[str], wanted: WantedRows) -> dict[str, Box]:
    """Phases beside GPU over output; threads below: on a wide screen under the phases, else as wide as the screen."""
    wide = body.width >= WIDE_FROM
    right = [name for name in ("gpu", "output") if name in panes]
    left = [name for name in ("phases", "threads") if name in panes]
    threads_rows = _threads_height(body.height, wanted) if "threads" in panes else 0
    if not left:
        return _gpu_over_output(body, right, wanted)
    if left == ["threads"]:
        if not right:
            return {"threads": body}
        upper = body._replace(height=body.height - threads_rows)
        below = Box(body.x, upper.y + upper.height, body.width, threads_rows)
        return {**_gpu_over_output(upper, right, wanted), "threads": below}
    upper = body._replace(height=body.height - threads_rows)
    left_width = upper.width - right_width(upper.width) if right else upper.width
    boxes = {"phases": upper._replace(width=left_width)}
    if threads_rows:
        under = left_width if wide else body.width
        boxes["threads"] = Box(body.x, upper.y + upper.height, under, threads_rows)
    column = (body if wide else upper)._replace(x=left_width, width=body.width - left_width)
    return boxes | _gpu_over_output(column, right, wanted)


def _threads_height(room: int, wanted: WantedRows) -> int:
    """Rows for the threads: what they fill, in steps of four so that panes seldom move; about half for many."""
    rows = -(-wanted.threads // 4) * 4 + _FRAME + 1
    upper_least = max(_LEAST["phases"], min(wanted.phases + _FRAME, room // 2))
    upper_most = max(upper_least, _UPPER_MOST)
    return max(_LEAST["threads"], room - upper_most, min(rows, room - upper_least))


def _gpu_over_output(column: Box, names: list[str], wanted: WantedRows) -> dict[str, Box]:
    rows = dict.fromkeys(names, column.height)
    if len(names) == 2:
        # the rows that the GPUs fill, two thirds at most, so that the output keeps its room
        most = max(column.height * 2 // 3, _LEAST["gpu"])
        rows["gpu"] = max(min(wanted.gpu + _FRAME, most, column.height - _LEAST["output"]), 0)
        rows["output"] = column.height - rows["gpu"]
    boxes: dict[str, Box] = {}
    y = column.y
    for name in names:
        if rows[name] > 0:
            boxes[name] = column._replace(y=y, height=rows[name])
            y += rows[name]
    return boxes


def _stacked(body: Box, panes: AbstractSet[str], wanted: WantedRows) -> dict[str, Box]:
    """One column: each pane gets its least rows by importance, then what is left goes where it is of use."""
    least = _LEAST | dict.fromkeys(wanted.lines, 1)
    room = body.height
    heights: dict[str, int] = {}
    for name in IMPORTANCE:
        if name in panes and (least[name] <= room or not heights):
            heights[name] = min(least[name], room)
            room -= heights[name]
    _share_out(room, heights, wanted)
    boxes: dict[str, Box] = {}
    y = body.y
    for name in ("phases", "gpu", "output", "loaders", "threads"):
        if name in heights:
            boxes[name] = Box(body.x, y, body.width, heights[name])
            y += heights[name]
    return boxes


def _share_out(room: int, heights: dict[str, int], wanted: WantedRows) -> None:
    """Add the rows that are left, one at a time: to panes that can fill more, then to the last one."""
    most = {
        "phases": wanted.phases + _FRAME,
        "threads": wanted.threads + _FRAME + 1,
        "gpu": wanted.gpu + _FRAME,
        "loaders": wanted.loaders + _FRAME,
        **dict.fromkeys(wanted.lines, 1),
    }
    while room > 0 and heights:
        hungry = [name for name in heights if heights[name] < most.get(name, 10)]
        for name in hungry or [name for name in heights if name not in wanted.lines][-1:]:
            if room > 0:
                heights[name] += 1
                room -= 1
        if not hungry and not room:
            break
        if wanted.lines.issuperset(heights):
            break
