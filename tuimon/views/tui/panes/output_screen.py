"""A program's output as a terminal would show it, so that progress bars and colours appear as meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tuimon.views.tui.drawing.lines import Line, Span

if TYPE_CHECKING:
    from tuimon.views.tui.panes.emulator import Emulator

# Strings to the terminal (titles, clipboard, graphics) and their start without an end: binary garbage that holds one
# would otherwise swallow all that follows. Character set switches would turn all later text to line drawing.
_STRINGS = re.compile(
    rb"\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[\]PX^_]|\x1b[()*+%#][0-9A-Za-z@]?|[\x0e\x0f]|\xc2[\x80-\x9f]"
)


class OutputScreen:
    """Bytes in, the last lines out. No input can break it."""

    def __init__(self) -> None:
        self._begun: Emulator | None = None
        self.failures = 0
        self.version = 0

    def feed_bytes(self, data: bytes) -> None:
        """Let the terminal process the program's next bytes."""
        if not data:
            return
        self.version += 1
        try:
            self._emulator.feed(_STRINGS.sub(b"", data))
        except Exception:  # noqa: BLE001  (a sequence that pyte stumbles over: forget it and go on)
            self.failures += 1
            self._emulator.forget_sequence()

    def add_note(self, text: str) -> None:
        """Add a line of our own between the program's."""
        self._emulator.gone.extend(row for row in self._emulator.rows() if row)
        self._emulator.gone.append((Span(text, "warning"),))
        self._emulator.reset()
        self.version += 1

    @property
    def line_count(self) -> int:
        """How many lines there are to see."""
        return len(self._emulator.gone) + len(self._emulator.rows()) if self._begun else 1

    def tail(self, count: int, above: int = 0) -> list[Line]:
        """The last ``count`` lines, or those that end ``above`` lines before the end."""
        if self._begun is None:
            return [()]
        rows = self._begun.rows()
        end = len(self._begun.gone) + len(rows) - above
        start = max(0, end - count)
        gone = len(self._begun.gone)
        from_history = [self._begun.gone[i] for i in range(start, min(end, gone))]
        return from_history + rows[max(0, start - gone) : max(0, end - gone)]

    @property
    def _emulator(self) -> Emulator:
        if self._begun is None:
            from tuimon.views.tui.panes.emulator import Emulator  # noqa: PLC0415  (few look at it before the first frame)

            self._begun = Emulator()
        return self._begun


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
