"""The rows of the Phases pane: each phase on the CPU's and, where it is known, on the GPU's clock, with user ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuimon.session.rows import PhaseRow, PhaseTable, RangeRow
from tuimon.views.format import ABSENT, ms, percent, plain
from tuimon.views.gpu_idle import idle_text
from tuimon.views.tui.baseline.baseline import change_text
from tuimon.views.tui.drawing.charts import bar
from tuimon.views.tui.drawing.lines import Line, Span, cells, clipped, column, line

NAME = 10
_MS, _SHARE = 10, 7
_GPU, _IDLE, _ERROR = 19, 19, 7
#: Columns from which the GPU's span, an estimate's error and the GPU's idle time are shown.
_GPU_FROM, _ERROR_FROM, _IDLE_FROM = 50, 64, 74
#: An estimate's error leaves the bar so many.
_LEAST_BAR = 6
#: The change against the baseline, and the columns from which it is shown.
_CHANGE, _CHANGE_FROM = 9, 44


def phase_rows(
    table: PhaseTable, ranges: Sequence[RangeRow], width: int, before_ms: Mapping[str, float] | None = None
) -> list[Line]:
    """Each phase followed by the ranges whose outermost range lies mostly in it; ``before_ms``: of the baseline."""
    changes = before_ms is not None and width >= _CHANGE_FROM
    if changes:
        width -= _CHANGE
    home = _homes(table, ranges)
    gpu = any(phase.gpu_ms_per_step is not None for phase in table.rows)
    error = any(_error(phase) for phase in table.rows)
    rows: list[Line] = []
    for phase in table.rows:
        row = phase_line(phase, width, gpu=gpu, error=error)
        rows.append((*row, _change(phase, before_ms)) if changes and before_ms is not None else row)
        rows += [
            range_line(row, width, gpu=gpu, error=error)
            for row in ranges
            if home[row.path.split("/", 1)[0]] == phase.name
        ]
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


def phase_line(phase: PhaseRow, width: int, *, gpu: bool = False, error: bool = False) -> Line:
    """``data  ███████▌   41.5 ms   62 %``; estimated figures carry ``~`` and, where there is room, their error.

    ``gpu``: with columns for the span on the GPU's clock and what of it the GPU idles, ``error``: with one for errors,
    as far as there is room.
    """
    mark = "~" if phase.estimated else ""
    share = f"{mark}{percent(phase.share)}"
    within = column(_error(phase), _error_cells(width, gpu=gpu) if error else 0)
    quiet = phase.share < 0.005
    text = "dim" if quiet else "text"
    timed = _gpu_columns(phase, width, text) if gpu and _gpu_cells(width) else ()
    room = width - NAME - _MS - _SHARE - len(within) - 1 - cells(timed)
    return (
        Span(column(phase.name, NAME), "dim" if quiet else f"{phase.name} bold"),
        Span(bar(phase.share, max(room, 0)), phase.name),
        Span(" "),
        Span(column(mark * (phase.ms_per_step is not None) + ms(phase.ms_per_step), _MS, ">"), text),
        *timed,
        Span(column(share, _SHARE, ">"), "dim" if quiet else "strong"),
        Span(within, "dim"),
    )


def _change(phase: PhaseRow, before_ms: Mapping[str, float]) -> Span:
    """What it takes against what it took: ``-97 %``; ``new`` where it took nothing."""
    text, role = change_text(before_ms.get(phase.name), phase.ms_per_step)
    return Span(column(text, _CHANGE, ">"), role)


def _error(phase: PhaseRow) -> str:
    return f" ±{percent(phase.error)}" if phase.estimated and phase.error is not None else ""


def _error_cells(width: int, *, gpu: bool) -> int:
    """How many cells of a row an estimate's error takes."""
    room = width - NAME - _MS - _SHARE - 1 - (_gpu_cells(width) if gpu else 0)
    return _ERROR if width >= _ERROR_FROM and room >= _ERROR + _LEAST_BAR else 0


def _gpu_cells(width: int) -> int:
    """How many cells of a row the GPU's columns take."""
    return 0 if width < _GPU_FROM else _GPU if width < _IDLE_FROM else _GPU + _IDLE


def _gpu_columns(phase: PhaseRow, width: int, role: str) -> Line:
    spans = line(("  GPU span", "dim"), (column(ms(phase.gpu_ms_per_step), _GPU - 10, ">"), role))
    if _gpu_cells(width) == _GPU:
        return spans
    return (*spans, *line(("  idle", "dim"), (column(idle_text(phase) or ABSENT, _IDLE - 6, ">"), role)))


def range_line(row: RangeRow, width: int, *, gpu: bool = False, error: bool = False) -> Line:
    """A user range under its phase, in the same columns: name, how often a step, its own time."""
    unknown = " " * (_gpu_cells(width) * gpu)
    within = " " * (_error_cells(width, gpu=gpu) * error)
    name_width = max(NAME, width - _MS - _SHARE - 1 - len(unknown) - len(within))
    often = "" if 0.95 <= row.per_step <= 1.05 else f" ×{row.per_step:.3g}"
    name = "  " * row.depth + " └ " + plain(row.name)
    return line(
        (column(clipped(name, name_width - len(often)) + often, name_width), "dim"),
        " ",
        (column(ms(row.ms_per_step), _MS, ">") + unknown, "dim"),
        (column(percent(row.share), _SHARE, ">") + within, "dim"),
    )
