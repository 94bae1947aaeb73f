"""A column of places: as wide as the longest needs, a file's name cut from the left, a line's number never."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len

from tuimon.views.format import ABSENT, place
from tuimon.views.tui.drawing.lines import column

#: Cells between a place and what follows it.
_GAP = 2


def places_width(places: Iterable[tuple[str, int]], most: int) -> int:
    """Cells of a column with these files and lines, the gap behind it among them; at most ``most``."""
    return min(max((cell_len(place(file, line)) for file, line in places), default=len(ABSENT)) + _GAP, most)


def place_column(file: str, line: int, width: int) -> str:
    """A place in exactly ``width`` cells, the gap behind it among them."""
    return column(place(file, line, width=max(width - _GAP, 0)), width)
