"""A small terminal emulator for a program's output, so that progress bars and colours appear as meant."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

import pyte
from pyte.modes import LNM
from rich.cells import cell_len

from tuimon.text import plain
from tuimon.views.tui.drawing.lines import Line, Span

#: Wider than any pane: a progress bar that wrapped here could not go back to its beginning. Panes wrap for display.
COLUMNS, ROWS = 240, 24
HISTORY_LINES = 1000

# Strings to the terminal (titles, clipboard, graphics) and their start without an end: binary garbage that holds one
# would otherwise swallow all that follows. Character set switches would turn all later text to line drawing.
_STRINGS = re.compile(
    rb"\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[\]PX^_]|\x1b[()*+%#][0-9A-Za-z@]?|[\x0e\x0f]|\xc2[\x80-\x9f]"
)
_HEX = re.compile(r"[0-9a-fA-F]{6}$")
_ANSI = {"brown": "yellow", "brightbrown": "bright_yellow", "bfightmagenta": "bright_magenta"}


class _Screen(pyte.Screen):  # type: ignore[misc]  # pyte has no types
    """A pyte screen that keeps the lines scrolled off its top and obeys only harmless sequences."""

    def __init__(self) -> None:
        self.gone: deque[Line] = deque(maxlen=HISTORY_LINES)
        self.gone_lines = 0
        super().__init__(COLUMNS, ROWS)
        self.mode.add(LNM)  # pyte sets its own modes after the reset

    def reset(self) -> None:
        """The state after power-on; a line feed also returns to column 0, as in a file."""
        super().reset()
        self.mode.add(LNM)

    def index(self) -> None:
        """Move down; the first line leaves when the last was reached."""
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self.gone.append(_line(self.buffer[0]))
            self.gone_lines += 1
        super().index()

    def set_mode(self, *modes: int, **kwargs: bool) -> None:
        """Modes stay as they are: no 132 columns, no reverse screen."""

    def reset_mode(self, *modes: int, **kwargs: bool) -> None:
        """Modes stay as they are."""

    def select_graphic_rendition(self, *attrs: int, **kwargs: bool) -> None:
        """Colours; private sequences that only look like one are left out."""
        if not kwargs:
            super().select_graphic_rendition(*attrs)

    def rows(self) -> list[Line]:
        """The lines down to the last that holds anything or the cursor."""
        last = max((y for y, row in self.buffer.items() if row), default=0)
        return [_line(self.buffer[y]) for y in range(min(max(last, self.cursor.y), self.lines - 1) + 1)]


class OutputScreen:
    """Bytes in, the last lines out. No input can break it."""

    def __init__(self) -> None:
        self._screen = _Screen()
        self._stream = pyte.ByteStream(self._screen)
        self.failures = 0
        self.version = 0

    def feed_bytes(self, data: bytes) -> None:
        """Let the terminal process the program's next bytes."""
        if not data:
            return
        self.version += 1
        try:
            self._stream.feed(_STRINGS.sub(b"", data))
        except Exception:  # noqa: BLE001  (a sequence that pyte stumbles over: forget it and go on)
            self.failures += 1
            self._stream = pyte.ByteStream(self._screen)

    def add_note(self, text: str) -> None:
        """Add a line of our own between the program's."""
        self._screen.gone.extend(row for row in self._screen.rows() if row)
        self._screen.gone.append((Span(text, "warning"),))
        self._screen.reset()
        self.version += 1

    @property
    def line_count(self) -> int:
        """How many lines there are to see."""
        return len(self._screen.gone) + len(self._screen.rows())

    def tail(self, count: int, above: int = 0) -> list[Line]:
        """The last ``count`` lines, or those that end ``above`` lines before the end."""
        rows = self._screen.rows()
        end = len(self._screen.gone) + len(rows) - above
        start = max(0, end - count)
        gone = len(self._screen.gone)
        from_history = [self._screen.gone[i] for i in range(start, min(end, gone))]
        return from_history + rows[max(0, start - gone) : max(0, end - gone)]


def _line(row: Mapping[int, pyte.screens.Char]) -> Line:
    """A row of the buffer as spans of like characters, without the blanks at its end."""
    if not row:
        return ()
    spans: list[Span] = []
    text, role = "", ""
    for x in range(max(row) + 1):
        char = row.get(x)
        if char is None:
            data, own = " ", ""
        else:
            data, own = char.data, _role(char)
        if own != role:
            if text:
                spans.append(Span(text, role))
            text, role = "", own
        text += data  # the second cell of a wide character is ""
    text = text if "bg:" in role or "reverse" in role else text.rstrip(" ")
    if text:
        spans.append(Span(text, role))
    return tuple(Span(plain(span.text), span.role) for span in spans)


def _role(char: pyte.screens.Char) -> str:
    words = []
    if char.fg != "default":
        words.append(f"fg:{_colour(char.fg)}")
    if char.bg != "default":
        words.append(f"bg:{_colour(char.bg)}")
    for name in ("bold", "italics", "underscore", "reverse", "strikethrough"):
        if getattr(char, name, False):
            words.append({"italics": "italic", "underscore": "underline", "strikethrough": "strike"}.get(name, name))
    return " ".join(word for word in words if not word.endswith(":"))


def _colour(name: str) -> str:
    """pyte's name for a colour as Rich's; empty for nonsense."""
    if _HEX.match(name):
        return f"#{name}"
    if name in _ANSI:
        return _ANSI[name]
    if name.startswith("bright"):
        return f"bright_{name[6:]}"
    return name if name in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white") else ""


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
