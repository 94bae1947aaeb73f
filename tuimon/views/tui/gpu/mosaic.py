"""Many GPUs in few rows: several in a line, below them what is wrong or how far their figures range."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from tuimon.views.format import ABSENT, percent
from tuimon.views.tui.drawing.charts import chart
from tuimon.views.tui.drawing.lines import Line, Span, clip, column, line
from tuimon.views.tui.gpu.figures import GpuView
from tuimon.views.tui.gpu.gpu_table import FIGURES
from tuimon.views.tui.gpu.names import GAP, mark_of, name_of, trouble_of

_UTIL = 5


def gpu_mosaic(views: Sequence[GpuView], width: int, height: int) -> list[Line]:
    """Several GPUs in a line; below them what is wrong, or the range of their figures.

    Each with its utilisation; a MIG instance, for which the driver does not report it, with its SM activity.
    """
    cut = {view.gpu.latest.parent_uuid for view in views}  # GPUs of which only the instances are shown
    views = [view for view in views if view.gpu.latest.uuid not in cut]
    names = max(cell_len(name_of(view.gpu)) for view in views)
    least = 2 + names + _UTIL
    rows = max(height - 1, 1)
    across = min(max(-(-len(views) // rows), 1), max((width + GAP) // (least + GAP), 1))
    room = (width + GAP) // across - GAP - least
    cells_of = [_tile(view, names, room - 1 if room > 2 else 0) for view in views[: across * rows]]
    lines = [_spread(cells_of[first : first + across]) for first in range(0, len(cells_of), across)]
    if len(lines) < height:
        lines.append(_summary(views, len(views) - len(cells_of), width))
    return [clip(row, width) for row in lines]


def _tile(view: GpuView, names: int, chart_width: int) -> Line:
    gpu = view.gpu
    whole = gpu.latest.parent_uuid is None
    busy = (gpu.figures.util_ratio, gpu.util_history) if whole else (gpu.figures.sm_ratio, gpu.sm_history)
    plot = chart(busy[1], chart_width, 1, 0.0, 1.0, whole=view.whole)
    util = Span(column(percent(busy[0]), _UTIL, ">"), view.strong)
    return (
        mark_of(view),
        Span(column(name_of(gpu), names), "text"),
        util,
        Span(f" {plot[0]}" if plot else "", "gpu-edge"),
    )


def _spread(tiles: Sequence[Line]) -> Line:
    spans: list[Span] = []
    for tile in tiles:
        spans += [*line(" " * GAP)[: bool(spans)], *tile]
    return tuple(spans)


def _summary(views: Sequence[GpuView], hidden: int, width: int) -> Line:
    """Every trouble; else the range of each figure."""
    troubled = [view for view in views if trouble_of(view, width)]
    room = width // max(len(troubled), 1) - 6
    troubles = [line((f"{name_of(view.gpu)}: ", "text"), *trouble_of(view, room)) for view in troubled]
    more = [line((f"+{hidden} more (z)", "dim"))] if hidden else []
    if troubles:
        return _spread([*troubles, *more])
    ranges = [
        line((f"{of.head} ", "dim"), (_range([of.text(view.gpu) for view in views]), "text"))
        for of in FIGURES
        if of.head != "GiB" and any(of.text(view.gpu) != ABSENT for view in views)
    ]
    return _spread([*ranges, *more])


def _range(texts: Sequence[str]) -> str:
    """``512–519 W`` of ``512 W`` and ``519 W``."""
    known = sorted({text for text in texts if text != ABSENT}, key=lambda text: float(text.split()[0].lstrip("<")))
    least, most = known[0], known[-1]
    return most if least == most else f"{least.split()[0]}–{most}"
