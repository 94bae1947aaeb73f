"""One thread as a row of the table, and whole as a sheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tuimon.node_ids import own_id
from tuimon.session.rows import HotLine, ThreadRow
from tuimon.views.format import code, percent, plain
from tuimon.views.tui.drawing.charts import bar, meter
from tuimon.views.tui.drawing.lines import (
    Line,
    Span,
    clipped_left,
    column,
    column_name,
    line,
    place_column,
    places_width,
    with_cursor,
)

_STATE_ROLES = {"running": "benign", "disk": "critical", "stopped": "warning"}


#: Cells from which a line of code says something.
_LEAST_CODE = 8


class ColumnWidths(NamedTuple):
    """Widths in cells; 0: the column is left out."""

    role: int
    pid: int
    tid: int
    cpu: int
    bar: int
    delay: int
    gil: int
    state: int
    place: int
    source: int


def column_widths(rows: Sequence[ThreadRow], width: int) -> ColumnWidths:
    """Widths for these rows: what they need, and what the screen has."""
    role = max((cell_len(role_text(row)) for row in rows), default=4)
    role = max(10, min(role, 24 if width >= 90 else 20)) + 2
    pid = 8 if width >= 104 and len({row.pid for row in rows}) > 1 else 0
    tid = 8 if width >= 60 else 0
    gauge = 12 if width >= 100 else 0
    delay = 8 if width >= 96 else 0
    gil = 6 if width >= 96 and any(row.gil_ratio is not None for row in rows) else 0
    fixed = role + pid + tid + 7 + gauge + delay + gil + 10
    rest = max(width - fixed, 0)
    spot = places_width(((row.place.file, row.place.line) for row in rows if row.place), min(42, rest))
    spot = min(max(spot, len("where") + 2), rest)
    spot = rest if rest - spot < _LEAST_CODE else spot
    return ColumnWidths(role, pid, tid, 7, gauge, delay, gil, 10, spot, rest - spot)


def header_line(columns: ColumnWidths, sorted_by: str) -> Line:
    """Names of the columns; the sorted one is marked."""

    def name(text: str, width: int, align: str = "<") -> Span:
        return column_name(text, width, align, sorted_by)

    spans = [name("role", columns.role)]
    if columns.pid:
        spans.append(name("pid", columns.pid))
    if columns.tid:
        spans.append(name("tid", columns.tid))
    spans += [name("cpu", columns.cpu - 1, ">"), Span(" " * (1 + columns.bar))]
    if columns.delay:
        spans += [name("delay", columns.delay - 1, ">"), Span(" ")]
    if columns.gil:
        spans += [name("gil", columns.gil - 1, ">"), Span(" ")]
    spans += [Span(" "), name("state", columns.state - 1), name("where", columns.place + columns.source)]
    return tuple(spans)


def thread_line(row: ThreadRow, columns: ColumnWidths, *, cursor: bool = False) -> Line:
    """One row of the table."""
    idle = (row.cpu_ratio or 0.0) < 0.005
    spans = [Span(column(role_text(row), columns.role - 2) + "  ", _role_style(row))]
    if columns.pid:
        spans.append(Span(column(str(own_id(row.pid)), columns.pid), "dim"))
    if columns.tid:
        spans.append(Span(column(str(own_id(row.tid)) if row.count == 1 and row.tid > 0 else "", columns.tid), "dim"))
    spans.append(Span(column(percent(row.cpu_ratio), columns.cpu - 1, ">") + " ", "dim" if idle else "strong"))
    if columns.bar:
        full, track = meter(row.cpu_ratio, columns.bar - 2)
        spans += [Span(" "), Span(full, _load(row.cpu_ratio)), Span(track + " ", "track")]
    if columns.delay:
        text = percent(row.delay_ratio)
        spans.append(Span(column(text, columns.delay - 1, ">") + " ", _delay_style(row.delay_ratio)))
    if columns.gil:
        held = percent(row.gil_ratio) if row.gil_ratio is not None else ""
        spans.append(Span(column(held, columns.gil - 1, ">") + " ", "dim"))
    state = "ended" if row.ended else plain(row.state)
    spans.append(Span(" " + column(state, columns.state - 1), _STATE_ROLES.get(state, "dim")))
    spans.append(
        Span(
            place_column(row.place.file, row.place.line, columns.place) if row.place else column("–", columns.place),
            "key" if row.place else "faint",
        )
    )
    source = plain(row.place.source).strip() if row.place else ""
    spans.append(Span(column(source or _function(row), columns.source), "text" if source else "dim"))
    return with_cursor(spans) if cursor else tuple(spans)


def role_text(row: ThreadRow) -> str:
    """The rank, the role, and how many threads the row stands for."""
    rank = f"rank {row.rank}: " if row.rank is not None else ""
    return rank + plain(row.role or row.name) + (f" ×{row.count}" if row.count > 1 else "")


def _function(row: ThreadRow) -> str:
    return f"{plain(row.place.function)}()" if row.place and row.place.function else ""


def _role_style(row: ThreadRow) -> str:
    if row.role in ("main", "training"):
        return "text" if row.ended else "strong"
    return "text" if (row.cpu_ratio or 0.0) >= 0.005 else "dim"


def _load(ratio: float | None) -> str:
    return "chart-edge" if (ratio or 0.0) >= 0.8 else "chart-body"


def _delay_style(ratio: float | None) -> str:
    return "warning" if (ratio or 0.0) >= 0.1 else "dim"


def thread_lines(row: ThreadRow, hot_lines: Sequence[HotLine], width: int, stack: Sequence[Line] = ()) -> list[Line]:
    """One thread whole, and where its process spends its samples; ``stack`` takes the place of its line."""
    facts = [
        ("role", plain(row.role)),
        *((("rank", str(row.rank)),) if row.rank is not None else ()),
        ("name", plain(row.name)),
        ("pid", str(own_id(row.pid))),
        ("tid", str(own_id(row.tid)) if row.count == 1 else f"{row.count} threads folded into one row"),
        ("cpu", f"{percent(row.cpu_ratio, 1)} of one core"),
        ("delay", f"{percent(row.delay_ratio, 1)} of the time ready to run, but no core was free"),
        ("state", "ended" if row.ended else plain(row.state)),
    ]
    if row.gil_ratio is not None:
        facts.append(("GIL", f"held {percent(row.gil_ratio)} of the time, within a tenth"))
    lines = [line((column(name, 10), "dim"), (text, "text")) for name, text in facts]
    return [*lines, *(_where(row, width)[:1] if stack else _where(row, width)), *stack, *_hot(hot_lines, width)]


def _where(row: ThreadRow, width: int) -> list[Line]:
    if row.place is None:
        why = "no Python frame seen: a native thread, or not sampled yet"
        return [line((column("where", 10), "dim"), (why, "dim"))]
    spot = clipped_left(f"{plain(row.place.file)}:{row.place.line}", max(width - 10, 10))
    lines = [line((column("where", 10), "dim"), (spot, "key"))]
    lines.append(line((column("function", 10), "dim"), (f"{plain(row.place.function)}()", "text")))
    if row.place.source:
        lines.append(line((column("line", 10), "dim"), (plain(row.place.source).strip(), "strong")))
    return lines


def _hot(hot_lines: Sequence[HotLine], width: int) -> list[Line]:
    """The line with most samples of the process."""
    if not hot_lines:
        return []
    lines: list[Line] = [(), line(("lines with most samples in this process", "strong"))]
    wide = places_width(((hot.place.file, hot.place.line) for hot in hot_lines[:12]), max(width // 2, 20))
    for hot in hot_lines[:12]:
        share = column(percent(hot.share), 5, ">")
        spot = place_column(hot.place.file, hot.place.line, wide)
        source = code(hot.place.source, hot.place.function)
        lines.append(
            line((share, "strong"), " ", (bar(hot.share, 10), "chart-edge"), "  ", (spot, "key"), (source, "text"))
        )
    return lines
