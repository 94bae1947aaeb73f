"""One thread as a row of the table, and whole as a sheet."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from tuimon.node_ids import own_id
from tuimon.session.stacks.samples import HotLine
from tuimon.session.threads import ThreadRow
from tuimon.views.format import ABSENT, code, percent, plain
from tuimon.views.tui.drawing.charts import bar, layers
from tuimon.views.tui.drawing.lines import (
    Column,
    Line,
    clipped,
    clipped_left,
    column,
    columns_of,
    line,
    place_column,
    places_width,
)

_STATE_ROLES = {"running": "benign", "disk": "critical", "stopped": "warning"}


#: Cells from which a line of code says something.
_LEAST_CODE = 8


def thread_columns(rows: Sequence[ThreadRow], width: int) -> list[Column[ThreadRow]]:
    """The columns for these rows: what they need, and what the screen has."""
    role = max((cell_len(role_text(row)) for row in rows), default=4)
    role = max(10, min(role, 24 if width >= 90 else 20)) + 2
    pid = 8 if width >= 104 and len({row.pid for row in rows}) > 1 else 0
    tid = 8 if width >= 60 else 0
    gauge = 12 if width >= 100 else 0
    delay = 7 if width >= 96 else 0
    gil = 5 if width >= 96 and any(row.gil_ratio is not None for row in rows) else 0
    fixed = role + pid + tid + 7 + gauge + delay + bool(delay) + gil + bool(gil) + 10
    rest = max(width - fixed, 0)
    spot = places_width(((row.place.file, row.place.line) for row in rows if row.place), min(42, rest))
    spot = min(max(spot, len("where") + 2), rest)
    spot = rest if rest - spot < _LEAST_CODE else spot
    return columns_of(
        Column("role", role, lambda row: (clipped(role_text(row), role - 2), _role_style(row))),
        Column("pid", pid, lambda row: (str(own_id(row.pid)), "dim")),
        Column("tid", tid, lambda row: (str(own_id(row.tid)) if row.count == 1 else "", "dim")),
        Column("cpu", 6, lambda row: (percent(row.cpu_ratio), "dim" if _is_idle(row) else "strong"), ">", 1),
        Column("", gauge, lambda row: _gauge(row, gauge)),
        Column("delay", delay, lambda row: (percent(row.delay_ratio), _delay_style(row.delay_ratio)), ">", 1),
        Column("gil", gil, lambda row: (percent(row.gil_ratio) if row.gil_ratio is not None else "", "dim"), ">", 1),
        Column(" state", 10, lambda row: (f" {_state(row)}", _STATE_ROLES.get(_state(row), "dim"))),
        Column("where", rest, lambda row: _where_cells(row, spot, rest - spot)),
    )


def _is_idle(row: ThreadRow) -> bool:
    return (row.cpu_ratio or 0.0) < 0.005


def _gauge(row: ThreadRow, width: int) -> Line:
    ratio = row.cpu_ratio or 0.0
    return line(" ", *layers([(ratio, "━", "chart-edge" if ratio >= 0.8 else "chart-body")], width - 2, behind=1))


def _state(row: ThreadRow) -> str:
    return "ended" if row.ended else plain(row.state)


def _where_cells(row: ThreadRow, spot: int, room: int) -> Line:
    """Its place and its line of code; the function, if that is not known."""
    if row.place is None:
        return line((column(ABSENT, spot), "faint"), (column("", room), "dim"))
    source = plain(row.place.source).strip()
    function = f"{plain(row.place.function)}()" if row.place.function else ""
    code = (column(source or function, room), "text" if source else "dim")
    return line((place_column(row.place.file, row.place.line, spot), "key"), code)


def role_text(row: ThreadRow) -> str:
    """The rank, the role, and how many threads the row stands for."""
    rank = f"rank {row.rank}: " if row.rank is not None else ""
    return rank + plain(row.role or row.name) + (f" ×{row.count}" if row.count > 1 else "")


def _role_style(row: ThreadRow) -> str:
    if row.role in ("main", "training"):
        return "text" if row.ended else "strong"
    return "dim" if _is_idle(row) else "text"


def _delay_style(ratio: float | None) -> str:
    return "warning" if (ratio or 0.0) >= 0.1 else "dim"


def thread_lines(row: ThreadRow, hot: Sequence[HotLine], width: int, stack: Sequence[Line] = ()) -> list[Line]:
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
    lines += [*(_where(row, width)[:1] if stack else _where(row, width)), *stack]
    if hot:
        lines += [(), line(("lines with most samples in this process", "strong"))]
        lines += hot_lines(hot[:12], width, gauge=10)
    return lines


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


def hot_lines(hot: Sequence[HotLine], width: int, gauge: int = 0) -> list[Line]:
    """Lines by their share of samples, with a bar of ``gauge`` cells: share, place and code."""
    places = [row.place for row in hot]
    spot = places_width(((place.file, place.line) for place in places), max(width // 2, 20))
    return [
        line(
            (column(percent(row.share), 5, ">"), "strong"),
            *(line(" ", (bar(row.share, gauge), "chart-edge")) if gauge else ()),
            "  ",
            (place_column(row.place.file, row.place.line, spot), "key"),
            (code(row.place.source, row.place.function), "text"),
        )
        for row in hot
    ]
