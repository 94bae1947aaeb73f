"""Tables: of each column the name, the width and the cell in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from tuimon.views.tui.drawing.lines import Line, Span, column, with_cursor

Row = TypeVar("Row")


class Column(Struct, Generic[Row], frozen=True):
    """A column of ``width`` cells and a ``gap`` behind it. Its cell is a text and its role, or spans that fill it."""

    name: str
    width: int
    cell: Callable[[Row], tuple[str, str] | Line]
    align: str = "<"
    gap: int = 0
    role: str = "dim"  # of its name


def columns_of(*columns: Column[Row]) -> list[Column[Row]]:
    """Those that have a width."""
    return [each for each in columns if each.width > 0]


def head_line(columns: Iterable[Column[Row]], sorted_by: str = "") -> Line:
    """The names of the columns; that of the sorted one is marked."""
    spans: list[Span] = []
    for each in columns:
        name, role = (f"{each.name}▾", "key") if sorted_by and each.name == sorted_by else (each.name, each.role)
        indent = len(name) - len(name.lstrip()) if name else each.width
        spans += [
            Span(" " * indent),
            Span(column(name.lstrip(), each.width - indent, each.align), role),
            Span(" " * each.gap),
        ]
    return tuple(spans)


def row_line(columns: Sequence[Column[Row]], row: Row, *, cursor: bool = False) -> Line:
    """The cells of a row; ``cursor``: on the background of the cursor."""
    spans: list[Span] = []
    for each in columns:
        cell = each.cell(row)
        if len(cell) == 2 and isinstance(cell[0], str):
            spans.append(Span(column(cell[0], each.width, each.align) + " " * each.gap, str(cell[1])))
        else:
            spans += [*cell, Span(" " * each.gap)]
    return with_cursor(spans) if cursor else tuple(spans)
