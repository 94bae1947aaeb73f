"""A program's output as a terminal would show it, so that progress bars and colours appear as meant."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from tuimon.text import plain
from tuimon.views.tui.drawing.lines import Line, Span

#: Lines that can be scrolled back to, and the last of them, which bars one above the other may still change.
HISTORY_LINES, ROWS = 1000, 24
#: Characters of a line, which is then continued on the next: more than any progress bar has.
_LONGEST = 4096
#: What moves within the output (beginning of the line, a line down or up, tab, back) and what erases in a line.
_MOVES = re.compile(r"[\r\n\t\b]|\x1b\[(\d{0,4})A|\x1b\[([02]?)K")
#: Strings to the terminal (titles, clipboard, graphics) and their start without an end: binary garbage that holds one
#: would otherwise swallow all that follows; switches of character sets.
_STRINGS = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[\]PX^_]|\x1b[()*+%#][0-9A-Za-z@]?|[\x80-\x9f]"
)
#: A sequence whose end is still to come.
_CUT_OFF = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}|[\]PX^_][^\x07\x1b]{0,4096}\x1b?)?\Z")


class _Cell(NamedTuple):
    char: str
    role: str


_BLANK = _Cell(" ", "")


class OutputScreen:
    """Bytes in, the last lines out. No input can break it."""

    def __init__(self) -> None:
        self.version = 0
        self._gone: deque[Line] = deque(maxlen=HISTORY_LINES)
        self._rows: list[list[_Cell]] = [[]]
        self._row = self._column = 0
        self._rest = ""  # the beginning of a sequence
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._colours = AnsiDecoder()

    def feed_bytes(self, data: bytes) -> None:
        """Show the program's next bytes."""
        if not data:
            return
        self.version += 1
        text = self._rest + self._utf8.decode(data)
        cut_off = _CUT_OFF.search(text)
        self._rest = cut_off[0] if cut_off is not None else ""
        text = _STRINGS.sub("", text[: cut_off.start()] if cut_off is not None else text)
        begin = 0
        for move in _MOVES.finditer(text):
            self._write(text[begin : move.start()])
            begin = move.end()
            self._move(move)
        self._write(text[begin:])

    def add_note(self, text: str) -> None:
        """Add a line of our own between the program's."""
        self._gone.extend(_line(row) for row in self._rows if row)
        self._gone.append((Span(text, "warning"),))
        self._rows, self._row, self._column = [[]], 0, 0
        self.version += 1

    @property
    def line_count(self) -> int:
        """How many lines there are to see."""
        return len(self._gone) + len(self._rows)

    def tail(self, count: int, above: int = 0) -> list[Line]:
        """The last ``count`` lines, or those that end ``above`` lines before the end."""
        end = self.line_count - above
        start, gone = max(0, end - count), len(self._gone)
        kept = [self._gone[number] for number in range(start, min(end, gone))]
        return kept + [_line(row) for row in self._rows[max(0, start - gone) : max(0, end - gone)]]

    def _write(self, text: str) -> None:
        """Overwrite what is at the cursor."""
        cells = _cells(self._colours.decode_line(text)) if text else []
        while cells:
            row, column = self._rows[self._row], self._column
            part, cells = cells[: _LONGEST - column], cells[_LONGEST - column :]
            row.extend([_BLANK] * (column - len(row)))
            row[column : column + len(part)] = part
            self._column += len(part)
            if cells:
                self._move_down()

    def _move(self, move: re.Match[str]) -> None:
        match move[0]:
            case "\r":
                self._column = 0
            case "\n":
                self._move_down()
            case "\t":
                self._column += 8 - self._column % 8
            case "\b":
                self._column = max(0, self._column - 1)
            case up if up.endswith("A"):
                self._row = max(0, self._row - int(move[1] or 1))
            case _:
                del self._rows[self._row][0 if move[2] == "2" else self._column :]

    def _move_down(self) -> None:
        """To the beginning of the next line, as in a file."""
        self._row, self._column = self._row + 1, 0
        if self._row == len(self._rows):
            self._rows.append([])
        if len(self._rows) > ROWS:
            self._gone.append(_line(self._rows.pop(0)))
            self._row -= 1


def _cells(text: Text) -> list[_Cell]:
    """Characters with their roles; the decoder makes a span of each stretch with a style, in order."""
    cells = [_Cell(char, "") for char in text.plain]
    for span in text.spans:
        role = _role(span.style) if isinstance(span.style, Style) else ""
        for at in range(span.start, min(span.end, len(cells))):
            cells[at] = _Cell(cells[at].char, role)
    return cells


def _role(style: Style) -> str:
    colours = (("fg", style.color), ("bg", style.bgcolor))
    words = [f"{ground}:{colour.name}" for ground, colour in colours if colour is not None and not colour.is_default]
    return " ".join([*words, *(name for name in _ATTRIBUTES if getattr(style, name))])


_ATTRIBUTES = ("bold", "italic", "underline", "reverse", "strike")


def _line(row: Iterable[_Cell]) -> Line:
    """A row as spans of like characters, without the blanks at its end."""
    spans = [
        Span(plain("".join(cell.char for cell in cells)), role) for role, cells in groupby(row, key=lambda c: c.role)
    ]
    if spans and "bg:" not in spans[-1].role and "reverse" not in spans[-1].role:
        spans[-1] = Span(spans[-1].text.rstrip(" "), spans[-1].role)
    return tuple(span for span in spans if span.text)


def folded(lines: list[Line], width: int) -> list[Line]:
    """Lines broken to ``width`` cells for display, at the cell, as a terminal would."""
    rows: list[Line] = []
    for spans in lines:
        row: list[Span] = []
        room = width
        for span in spans:
            text = span.text
            while text:
                head, text = _cut(text, room)
                if head:
                    row.append(Span(head, span.role))
                    room -= cell_len(head)
                if text:
                    rows.append(tuple(row))
                    row, room = [], width
        rows.append(tuple(row))
    return rows


def _cut(text: str, width: int) -> tuple[str, str]:
    """As many characters as fit ``width`` cells (at least one in an empty row), and the rest."""
    if cell_len(text) <= width:
        return text, ""
    used = 0
    for index, char in enumerate(text):
        used += cell_len(char)
        if used > width:
            return text[:index], text[index:]
    return text, ""
