"""The terminal that a program's output is written to: pyte's, which obeys only harmless sequences."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

import pyte
from pyte.modes import LNM

from tuimon.text import plain
from tuimon.views.tui.drawing.lines import Line, Span

#: Wider than any pane: a progress bar that wrapped here could not go back to its beginning. Panes wrap for display.
COLUMNS, ROWS = 240, 24
HISTORY_LINES = 1000

_HEX = re.compile(r"[0-9a-fA-F]{6}$")
_ANSI = {"brown": "yellow", "brightbrown": "bright_yellow", "bfightmagenta": "bright_magenta"}


class Emulator(pyte.Screen):  # type: ignore[misc]  # pyte has no types
    """A pyte screen that keeps the lines scrolled off its top and obeys only harmless sequences."""

    def __init__(self) -> None:
        self.gone: deque[Line] = deque(maxlen=HISTORY_LINES)
        super().__init__(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self)
        self.mode.add(LNM)  # pyte sets its own modes after the reset

    def feed(self, data: bytes) -> None:
        """Take what a program writes; whatever pyte raises at it."""
        self._stream.feed(data)

    def forget_sequence(self) -> None:
        """Forget the sequence that is being read."""
        self._stream = pyte.ByteStream(self)

    def reset(self) -> None:
        """The state after power-on; a line feed also returns to column 0, as in a file."""
        super().reset()
        self.mode.add(LNM)

    def index(self) -> None:
        """Move down; the first line leaves when the last was reached."""
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self.gone.append(row_line(self.buffer[0]))
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
        return [row_line(self.buffer[y]) for y in range(min(max(last, self.cursor.y), self.lines - 1) + 1)]


def row_line(row: Mapping[int, pyte.screens.Char]) -> Line:
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
