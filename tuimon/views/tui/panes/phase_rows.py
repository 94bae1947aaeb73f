"""The rows of the Phases pane: each phase on the CPU's and, where it is known, on the GPU's clock, with user ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.session.rows import PhaseRow, PhaseTable, RangeRow
from tuimon.views.format import ABSENT, ms, percent, plain
from tuimon.views.gpu_idle import idle_text
from tuimon.views.tui.drawing.charts import bar
from tuimon.views.tui.drawing.lines import Line, Span, clipped, column, line

NAME = 10
_MS, _SHARE, _ERROR = 10, 7, 7
_GPU, _IDLE = 11, 15
#: Cells of a bar that the columns beside ms and share leave: those of the GPU, and an estimate's error.
_LEAST_BAR = 14


def phase_rows(table: PhaseTable, ranges: Sequence[RangeRow], width: int, *, with_gpu: bool = True) -> list[Line]:
    """Each phase followed by the ranges whose outermost range lies mostly in it; heads above the GPU's columns."""
    home = _homes(table, ranges)
    gpu = with_gpu and any(phase.gpu_ms_per_step is not None for phase in table.rows)
    error = any(_error(phase) for phase in table.rows)
    columns = columns_of(width, gpu=gpu, error=error)
    rows: list[Line] = [head_line(columns)] if columns.gpu else []
    most = max((phase.share or 0.0 for phase in table.rows if phase.name != "eval"), default=0.0) or 1.0
    for phase in table.rows:
        rows.append(phase_line(phase, columns, most))
        rows += [range_line(row, columns) for row in ranges if home[row.path.split("/", 1)[0]] == phase.name]
    return rows


def ranges_that_fit(table: PhaseTable, height: int, below: int = 0) -> tuple[RangeRow, ...]:
    """The ranges down to the depth that fits beside phases, chart and ``below``; else the longest of the outermost."""
    ranges = table.ranges
    room = height - len(table.rows) - below - (4 if height >= 16 else 1)
    if len(ranges) <= room:
        return ranges
    for depth in range(max((row.depth for row in ranges), default=0), -1, -1):
        kept = tuple(row for row in ranges if row.depth <= depth)
        if len(kept) <= room:
            return kept
    longest = sorted((row for row in ranges if row.depth == 0), key=lambda row: -row.ms_per_step)
    keep = {row.path for row in longest[: max(room, 0)]}
    return tuple(row for row in ranges if row.path in keep)


def _homes(table: PhaseTable, ranges: Sequence[RangeRow]) -> dict[str, str]:
    known = {row.name for row in table.rows}
    last = table.rows[-1].name if table.rows else ""
    homes: dict[str, str] = {}
    for row in ranges:
        homes.setdefault(row.path.split("/", 1)[0], row.phase if row.phase in known else last)
    return homes


class Columns(NamedTuple):
    """Cells of the columns behind a bar; 0: left out."""

    bar: int
    error: int = 0
    gpu: int = 0
    idle: int = 0


def columns_of(width: int, *, gpu: bool = False, error: bool = False) -> Columns:
    """The columns that leave a bar its room: the GPU's span, an estimate's error, how long the GPU idles."""
    bar_cells = width - NAME - _MS - _SHARE - 1
    wanted = ((_GPU, gpu), (_ERROR, error), (_IDLE, gpu))
    given = []
    for cells_of, is_wanted in wanted:
        given.append(cells_of if is_wanted and bar_cells - cells_of >= _LEAST_BAR else 0)
        bar_cells -= given[-1]
    return Columns(max(bar_cells, 0), given[1], given[0], given[2] if given[0] else 0)


def head_line(columns: Columns) -> Line:
    """Names of the GPU's columns."""
    return line(
        (" " * (NAME + columns.bar + 1) + column("CPU", _MS, ">") + " " * (_SHARE + columns.error), "dim"),
        (column("GPU span", columns.gpu, ">") + column("GPU idle", columns.idle, ">"), "dim"),
    )


def phase_line(phase: PhaseRow, columns: Columns, most: float = 1.0) -> Line:
    """``data  ███████▌   41.5 ms   62 %``; estimated figures carry ``~`` and, where there is room, their error.

    The bar of a phase with the share ``most`` fills its column.
    """
    mark = "~" if phase.estimated else ""
    share = f"{mark}{percent(phase.share)}"
    quiet = phase.share < 0.005
    text = "dim" if quiet else "text"
    timed = column(ms(phase.gpu_ms_per_step), columns.gpu, ">") if columns.gpu else ""
    timed += column(idle_text(phase) or ABSENT, columns.idle, ">") if columns.idle else ""
    return (
        Span(column(phase.name, NAME), "dim" if quiet else f"{phase.name} bold"),
        _bar(phase, columns.bar, most),
        Span(" "),
        Span(column(mark * (phase.ms_per_step is not None) + ms(phase.ms_per_step), _MS, ">"), text),
        Span(column(share, _SHARE, ">"), "dim" if quiet else "strong"),
        Span(column(_error(phase), columns.error), "dim"),
        Span(timed, text),
    )


def _bar(phase: PhaseRow, width: int, most: float) -> Span:
    """None for evaluation: its share is of the loop's time, those of the others are of a step."""
    if phase.name != "eval":
        return Span(bar(phase.share / most, width), phase.name)
    texts = ("beside the steps; share of the loop's time", "share of the loop's time", "")
    return Span(column(next(text for text in texts if len(text) <= width), width), "dim")


def _error(phase: PhaseRow) -> str:
    return f" ±{percent(phase.error)}" if phase.estimated and phase.error is not None else ""


def range_line(row: RangeRow, columns: Columns) -> Line:
    """A user range under its phase, in the same columns: name, how often a step, its own time."""
    name_width = NAME + columns.bar
    often = "" if 0.95 <= row.per_step <= 1.05 else f" ×{row.per_step:.3g}"
    name = "  " * row.depth + " └ " + plain(row.name)
    return line(
        (column(clipped(name, name_width - len(often)) + often, name_width), "dim"),
        " ",
        (column(ms(row.ms_per_step), _MS, ">") + column(percent(row.share), _SHARE, ">"), "dim"),
    )
