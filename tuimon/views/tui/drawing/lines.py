"""Text on a grid of terminal cells: spans with roles, measured by cell width, never markup; tables of such lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from tuimon.text import CodeLine, code_place
from tuimon.views.format import ABSENT, freed, kept_together

#: Cells of the names at the left of a pane, between two columns, and the fewest in which words or code say something.
NAME = 10
GAP = 2
MIN_TEXT = 8
Row = TypeVar("Row")


class Column(Struct, Generic[Row], frozen=True):
    """A column of ``width`` cells and a ``gap`` behind it. Its cell is a text and its role, or spans that fill it."""

    name: str
    width: int
    cell: Callable[[Row], tuple[str, str] | Span | Line]
    align: str = "<"
    gap: int = 0
    role: str = "dim"  # of its name


def shown_columns(*columns: Column[Row]) -> list[Column[Row]]:
    return [each for each in columns if each.width > 0]


def fitting_widths(wanted: Mapping[str, int], room: int) -> tuple[dict[str, int], int]:
    """Widths of columns, the most important first: 0 for those that do not fit; and the room that is left."""
    widths = {}
    for name, width in wanted.items():
        widths[name] = width if width <= room else 0
        room -= widths[name]
    return widths, room


def head_line(columns: Iterable[Column[Row]], sorted_by: str = "") -> Line:
    """The names of the columns; the one that rows are sorted by is marked."""
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
        match cell:
            case (str(text), str(role), *_):
                spans.append(Span(column(text, each.width, each.align) + " " * each.gap, role))
            case _:
                spans += [*line(*cell), Span(" " * each.gap)]
    return with_cursor(spans) if cursor else tuple(spans)


class Span(NamedTuple):
    """A piece of a line; ``role`` is words that ``palette`` knows, e.g. ``"data bold"``."""

    text: str
    role: str = ""
    at: tuple[str, int] | None = None  # file and line that it names, which the terminal may open


Line = tuple[Span, ...]
BLANK: Line = ()


def line(*parts: str | Span | tuple[str, str]) -> Line:
    """A line of parts: plain strings, or (text, role)."""
    return tuple(Span(part) if isinstance(part, str) else Span(*part) for part in parts)


def line_width(spans: Iterable[Span]) -> int:
    """Width in terminal cells."""
    return sum(cell_len(span.text) for span in spans)


def text_of(spans: Iterable[Span]) -> str:
    """The characters alone."""
    return "".join(span.text for span in spans)


def clipped(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, with an ellipsis where it was cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1) + "…" if width > 0 else ""


def clipped_left(text: str, width: int) -> str:
    """The end of ``text`` in at most ``width`` cells, which matters most in a path with a line's number."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width - 1:
        text = text[1:]
    return f"…{text}" if width > 0 else ""


def clipped_words(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, cut behind a word; a single word that is longer is cut within."""
    if cell_len(text) <= width:
        return text
    whole = clipped(text, width)[:-1]
    words = whole if text[len(whole) : len(whole) + 1] in (" ", ",", ";") else whole.rpartition(" ")[0]
    return f"{words.rstrip(' ,:;·(')}…" if words.strip() else clipped(text, width)


def column(text: str, width: int, align: str = "<") -> str:
    """``text`` in exactly ``width`` cells, cut or padded; ``align`` is ``"<"`` or ``">"``."""
    text = clipped(text, width)
    padding = " " * (width - cell_len(text))
    return padding + text if align == ">" else text + padding


def clip(spans: Sequence[Span], width: int) -> Line:
    """The spans in at most ``width`` cells."""
    kept: list[Span] = []
    room = width
    total = line_width(spans)
    if total <= width:
        return tuple(spans)
    for span in spans:
        size = cell_len(span.text)
        if size >= room:  # the last span that shows: it is too long, or more follow
            kept.append(span._replace(text=clipped(span.text + "…", room)))
            break
        kept.append(span)
        room -= size
    return tuple(kept)


def justified(left: Sequence[Span], right: Sequence[Span], width: int) -> Line:
    """``left`` and ``right`` at the two ends of ``width`` cells; the left one gives way."""
    room = width - line_width(right)
    if room < 1:
        return clip(left, width)
    left = clip(left, room - 1) if right else clip(left, room)
    return (*left, Span(" " * (room - line_width(left))), *right)


def chained(parts: Iterable[Line], gap: Span, width: int | None = None) -> Line:
    """The parts one after another, ``gap`` between them: all, or as many of the first ones as fit ``width`` cells."""
    spans: list[Span] = []
    for part in parts:
        longer = [*spans, gap, *part] if spans else [*part]
        if width is not None and line_width(longer) > width:
            break
        spans = longer
    return tuple(spans)


def with_cursor(spans: Sequence[Span]) -> Line:
    return tuple(span._replace(role=f"{span.role} cursor") for span in spans)


def padded(lines: Sequence[Line], height: int) -> list[Line]:
    """Exactly ``height`` lines: further ones are cut, missing ones are blank."""
    return [*lines[:height], *[BLANK] * (height - len(lines))]


def hanging(head: Line, text: str, width: int) -> list[Line]:
    """``text`` wrapped behind ``head``, its further rows below its first."""
    indent = line_width(head)
    rows = wrapped(text, max(width - indent, 12))
    return [(*(head if y == 0 else line(" " * indent)), *line((row, "text"))) for y, row in enumerate(rows)]


def wrapped(text: str, width: int) -> list[str]:
    """``text`` broken at spaces into pieces of at most ``width`` cells; longer words are cut, paths after a slash."""
    rows: list[str] = []
    row = ""
    for word in map(freed, kept_together(" ".join(text.split())).split(" ")):
        if row and cell_len(row) + 1 + cell_len(word) <= width:
            row += " " + word
            continue
        if row:
            rows.append(row)
        while cell_len(word) > width > 1:
            head = set_cell_size(word, width).rstrip(" ")
            head = head[: head.rfind("/") + 1] if "/" in head[1:] else head
            rows.append(head)
            word = word[len(head) :]  # noqa: PLW2901
        row = word
    if row:
        rows.append(row)
    return rows


def apart(parts: Iterable[Sequence[Line]]) -> list[Line]:
    """The parts below one another, a blank line between those that have any."""
    lines: list[Line] = []
    for part in parts:
        lines += [BLANK, *part] if lines and part else part
    return lines


def notes_lines(notes: Sequence[str], width: int, height: int) -> list[Line]:
    """Notes at the bottom of ``height`` rows, whole, in about a third of them.

    A note that does not fit is left out, unless it is the first, which is cut.
    """
    room = max(height // 3, 2)
    rows: list[Line] = []
    for note in notes:
        more = paragraph(note, width, "dim")
        if rows and len(rows) + len(more) > room:
            break
        rows += more
    most = max(height - 2, 1)
    return rows if len(rows) <= most else [*rows[: most - 1], clip((*rows[most - 1], Span(" …", "dim")), width)]


def paragraph(text: str, width: int, role: str = "", indent: int = 0) -> list[Line]:
    """``text`` wrapped, each row indented."""
    return [line(" " * indent, (row, role)) for row in wrapped(text, max(width - indent, 8))]


def places_width(places: Iterable[CodeLine], most: int) -> int:
    """Cells of a column with these lines of code, including the gap behind it; at most ``most``."""
    return min(max((cell_len(code_place(each)) for each in places), default=len(ABSENT)) + GAP, most)


def place_span(at: CodeLine, role: str, width: int | None = None) -> Span:
    """A line of code as ``train.py:44``, which the terminal may open; in ``width`` cells its end."""
    place = code_place(at)
    return Span(place if width is None else clipped_left(place, width), role, (at.file, at.line))


def place_column(at: CodeLine, width: int, role: str = "key") -> Line:
    """A place in exactly ``width`` cells, including the gap behind it."""
    span = place_span(at, role, max(width - GAP, 0))
    return (span, Span(" " * (width - cell_len(span.text))))
