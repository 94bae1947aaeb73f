"""Many GPUs: one line each under common column heads; those that the run does not use in one line together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tuimon.session.rows import GpuRow
from tuimon.views.format import ABSENT, celsius, percent, plain, watt
from tuimon.views.tui.charts import chart
from tuimon.views.tui.gpu_alarms import alarm_lines
from tuimon.views.tui.gpu_figures import GpuView, fitting, gib, slowed_words, stale_badge
from tuimon.views.tui.lines import Line, Span, cells, clip, clipped, column, line

_LEAST_CHART, _MOST_CHART = 6, 60
_GAP = 2
_UTIL = 5 + _GAP


class _Column(NamedTuple):
    """A figure of each GPU, right-aligned."""

    head: str
    width: int
    text: Callable[[GpuRow], str]
    role: str = "text"


class _Grid(NamedTuple):
    """The same widths for all lines."""

    columns: tuple[_Column, ...]
    names: int
    chart: int
    notes: int


_COLUMNS = (
    _Column("tensor", 6, lambda gpu: percent(gpu.tensor_ratio), "strong"),
    _Column("SM", 5, lambda gpu: percent(gpu.sm_ratio)),
    _Column("memory", 6, lambda gpu: percent(_full(gpu))),
    _Column("GiB", 5, lambda gpu: gib(gpu.memory_used_bytes)),
    _Column("power", 6, lambda gpu: watt(gpu.power_w)),
    _Column("heat", 6, lambda gpu: celsius(gpu.temperature_c)),
)
#: What stays longest where columns are short.
_IMPORTANCE = ("memory", "tensor", "power", "heat", "GiB", "SM")


def gpu_table(views: Sequence[GpuView], width: int, height: int) -> list[Line]:
    """At most ``height`` lines: a line each under column heads; where rows are short several in a line."""
    if len(views) > height:
        return gpu_mosaic(views, width, height)
    grid = _grid(views, width)
    rows = [_row(view, grid) for view in views]
    return [clip(row, width) for row in ([_heads(grid), *rows] if len(rows) < height else rows)]


def gpu_mosaic(views: Sequence[GpuView], width: int, height: int) -> list[Line]:
    """Several GPUs in a line; below them what is wrong, or the range of their figures.

    Each with its utilisation; a MIG instance, of which the driver does not tell it, with its SM activity.
    """
    cut = {view.gpu.parent_uuid for view in views}  # of these GPUs only the instances are shown
    views = [view for view in views if view.gpu.uuid not in cut]
    names = max(cell_len(name_of(view.gpu)) for view in views)
    least = 2 + names + _UTIL - _GAP
    rows = max(height - 1, 1)
    across = min(max(-(-len(views) // rows), 1), max((width + _GAP) // (least + _GAP), 1))
    room = (width + _GAP) // across - _GAP - least
    cells_of = [_tile(view, names, room - 1 if room > 2 else 0) for view in views[: across * rows]]
    lines = [_spread(cells_of[first : first + across]) for first in range(0, len(cells_of), across)]
    if len(lines) < height:
        lines.append(_summary(views, len(views) - len(cells_of), width))
    return [clip(row, width) for row in lines]


def _tile(view: GpuView, names: int, chart_width: int) -> Line:
    gpu = view.gpu
    busy = (gpu.util_ratio, gpu.util_history) if gpu.parent_uuid is None else (gpu.sm_ratio, gpu.sm_history)
    plot = chart(busy[1], chart_width, 1, 0.0, 1.0)
    util = Span(column(percent(busy[0]), _UTIL - _GAP, ">"), view.strong)
    return (
        mark_of(view),
        Span(column(name_of(gpu), names), "text"),
        util,
        Span(f" {plot[0]}" if plot else "", "gpu-edge"),
    )


def _spread(tiles: Sequence[Line]) -> Line:
    spans: list[Span] = []
    for tile in tiles:
        spans += [*line(" " * _GAP)[: bool(spans)], *tile]
    return tuple(spans)


def _summary(views: Sequence[GpuView], hidden: int, width: int) -> Line:
    """Every trouble; else the range of each figure."""
    troubled = [view for view in views if trouble_of(view, width)]
    room = width // max(len(troubled), 1) - 6
    told = [line((f"{name_of(view.gpu)}: ", "text"), *trouble_of(view, room)) for view in troubled]
    more = [line((f"+{hidden} more (z)", "dim"))] if hidden else []
    if told:
        return _spread([*told, *more])
    ranges = [
        line((f"{of.head} ", "dim"), (_range([of.text(view.gpu) for view in views]), "text"))
        for of in _COLUMNS
        if of.head != "GiB" and any(of.text(view.gpu) != ABSENT for view in views)
    ]
    return _spread([*ranges, *more])


def _range(texts: Sequence[str]) -> str:
    """``512–519 W`` of ``512 W`` and ``519 W``."""
    known = sorted({text for text in texts if text != ABSENT}, key=lambda text: float(text.split()[0].lstrip("<")))
    least, most = known[0], known[-1]
    return most if least == most else f"{least.split()[0]}–{most}"


def folded_line(gpus: Sequence[GpuRow], width: int) -> Line:
    """The GPUs that the run does not use: which, and how busy the busiest of them is."""
    whole = [gpu for gpu in gpus if gpu.parent_uuid is None]
    parts = len(gpus) - len(whole)
    which = f"GPU {spans_of([gpu.index for gpu in whole])}" if whole else ""
    which += f"{' and ' * bool(whole)}{parts} MIG instance{'s' * (parts != 1)}" if parts else ""
    busiest = max(
        (gpu for gpu in whole if gpu.util_ratio is not None), key=lambda gpu: gpu.util_ratio or 0, default=None
    )
    about = f" · busiest {percent(busiest.util_ratio)}" if busiest is not None else ""
    text = f"not used by this run: {which}{about}"
    return line((clipped(text if len(text) <= width else f"not used: {which}", width), "dim"))


def spans_of(numbers: Sequence[int]) -> str:
    """``1–3, 5``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)


def name_of(gpu: GpuRow) -> str:
    """``0``; a MIG instance, as part of the line above it, by its profile: ``└ 1g.10gb``."""
    if gpu.parent_uuid is None:
        return str(gpu.index)
    return f"└ {plain(gpu.name).rpartition('MIG ')[2]}"


def _grid(views: Sequence[GpuView], width: int) -> _Grid:
    """The columns of which any GPU tells something, the most important that leave room for a chart."""
    known = {column_of.head: column_of for column_of in _COLUMNS if any(column_of.text(v.gpu) != ABSENT for v in views)}
    names = max(cell_len(name_of(view.gpu)) for view in views)
    most = max(width // 4, 10)
    notes = min(max(cells(trouble_of(view, most)) for view in views), most)
    room = width - 2 - names - _UTIL - _LEAST_CHART - (notes + _GAP) * bool(notes)
    kept = set()
    for head in _IMPORTANCE:
        if head in known and known[head].width + _GAP <= room:
            kept.add(head)
            room -= known[head].width + _GAP
    columns = tuple(column_of for head, column_of in known.items() if head in kept)
    return _Grid(columns, names, min(room + _LEAST_CHART, _MOST_CHART), notes)


def _heads(grid: _Grid) -> Line:
    titles = [" " * _GAP + column(column_of.head, column_of.width, ">") for column_of in grid.columns]
    util = column("util", _UTIL - _GAP, ">") + " " * (_GAP + grid.chart)
    return line((" " * (2 + grid.names) + util + "".join(titles), "dim"))


def _row(view: GpuView, grid: _Grid) -> Line:
    gpu = view.gpu
    plot = chart(gpu.util_history, max(grid.chart, 0), 1, 0.0, 1.0)
    figures = (
        Span(" " * _GAP + column(of.text(gpu), of.width, ">"), "dim" if view.stale else of.role) for of in grid.columns
    )
    return (
        mark_of(view),
        Span(column(name_of(gpu), grid.names), "text" if gpu.used_by_run else "dim"),
        Span(column(percent(gpu.util_ratio), _UTIL - _GAP, ">") + " " * _GAP, view.strong),
        Span(plot[0] if plot else "", "gpu-edge"),
        *figures,
        Span(" " * _GAP * bool(grid.notes)),
        *clip(trouble_of(view, grid.notes), grid.notes),
    )


def mark_of(view: GpuView) -> Span:
    """A dot: bright where the run uses the GPU, in the colour of its trouble where it has one."""
    trouble = trouble_of(view, 80)
    if trouble:
        return Span("● ", trouble[0].role.split()[0])
    return Span("● ", "benign") if view.gpu.used_by_run else Span("· ", "faint")


def trouble_of(view: GpuView, width: int) -> Line:
    """What is wrong with a GPU, the worst alone."""
    slowed = slowed_words(view.gpu)
    alarms = alarm_lines(view.gpu, width)
    if alarms:
        return alarms[0]
    if view.stale or not slowed:
        return stale_badge(view, width)
    causes = ", ".join(plain(cause) for cause in view.gpu.throttle)
    return fitting([line((text, "warning")) for text in (f"slowed: {slowed}", slowed, causes)], width)


def _full(gpu: GpuRow) -> float | None:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return used / total if used is not None and total else None
