"""The Output pane: the run's output, as a terminal would show it."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from tuimon.views.format import plain, size
from tuimon.views.tui.drawing.lines import Line, Span, clip, line
from tuimon.views.tui.drawing.moving import MovingPane

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.sources.log.output import OutputTail
    from tuimon.views.report.report import Parts

#: Most bytes shown per tick, at about 0.4 us a byte; of a larger flood only the newest few screens, which costs
#: little CPU.
BYTES_PER_TICK = 16 * 1024
BYTES_IN_A_FLOOD = 4 * 1024
#: Lines that can be scrolled back to; and the last lines, which stacked progress bars may still change.
HISTORY_LINES, ROWS = 1000, 24
#: Most characters of a line, which then goes on in the next: more than any progress bar has.
_LONGEST = 4096
#: Sequences that move within the output (beginning of the line, a line down or up, tab, back) or erase in a line.
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
    """Takes the program's bytes and keeps the last lines of its screen. No input can break it."""

    def __init__(self) -> None:
        self.version = 0
        self._gone: deque[Line] = deque(maxlen=HISTORY_LINES)
        self._rows: list[list[_Cell]] = [[]]
        self._row = self._column = 0
        self._rest = ""  # the beginning of a sequence that is still to be completed
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
        """Add a line of tuimon between the program's."""
        self._gone.extend(_line(row) for row in self._rows if row)
        self._gone.append((Span(text, "warning"),))
        self._rows, self._row, self._column = [[]], 0, 0
        self.version += 1

    @property
    def line_count(self) -> int:
        """Number of lines kept."""
        return len(self._gone) + len(self._rows)

    def tail(self, count: int, above: int = 0) -> list[Line]:
        """The last ``count`` lines, or those that end ``above`` lines before the end."""
        end = self.line_count - above
        start, gone = max(0, end - count), len(self._gone)
        kept = [self._gone[number] for number in range(start, min(end, gone))]
        return kept + [_line(row) for row in self._rows[max(0, start - gone) : max(0, end - gone)]]

    def _write(self, text: str) -> None:
        """Write text at the cursor, over what stands there."""
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
        style, role = span.style, ""
        if isinstance(style, Style):
            grounds = (("fg", style.color), ("bg", style.bgcolor))
            words = [f"{at}:{colour.name}" for at, colour in grounds if colour is not None and not colour.is_default]
            role = " ".join([*words, *(name for name in _ATTRIBUTES if getattr(style, name))])
        for at in range(span.start, min(span.end, len(cells))):
            cells[at] = _Cell(cells[at].char, role)
    return cells


_ATTRIBUTES = ("bold", "italic", "underline", "reverse", "strike")


def _line(row: Iterable[_Cell]) -> Line:
    """A row as spans of like characters, without the blanks at its end."""
    spans = [
        Span(plain("".join(cell.char for cell in cells)), role) for role, cells in groupby(row, key=lambda c: c.role)
    ]
    if spans and "bg:" not in spans[-1].role and "reverse" not in spans[-1].role:
        spans[-1] = Span(spans[-1].text.rstrip(" "), spans[-1].role)
    return tuple(span for span in spans if span.text)


def broken_lines(lines: Iterable[Line], width: int) -> list[Line]:
    """Lines broken to ``width`` cells for display, at the cell, as a terminal would."""
    rows: list[Line] = []
    for spans in lines:
        row, used = list[_Cell](), 0
        for cell in (_Cell(char, span.role) for span in spans for char in span.text):
            used += cell_len(cell.char)
            if used > width and row:
                rows.append(_line(row))
                row, used = [], cell_len(cell.char)
            row.append(cell)
        rows.append(_line(row))
    return rows


class OutputState(NamedTuple):
    """The state of the pane."""

    version: int
    above: int
    skipped_bytes: int
    has_output: bool
    mode: str
    note: str | None


class OutputPane(MovingPane[OutputState]):
    """The tail of the output; the arrow keys scroll back."""

    sources = ("output",)

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.screen_of_run = OutputScreen()
        self.tail: OutputTail | None = None
        self._above = 0
        self._skipped_bytes = 0

    def read_output(self) -> None:
        """Show the output since the last call; a flood is cut, and the bytes left out are counted."""
        if self.tail is None:
            return
        before = self.tail.skipped_bytes
        data = self.tail.read(BYTES_PER_TICK)
        skipped = self.tail.skipped_bytes - before
        if skipped:
            newest = data[-BYTES_IN_A_FLOOD:]
            newest = newest[newest.find(b"\n") + 1 :]
            skipped += len(data) - len(newest)
            data = newest
            self._skipped_bytes += skipped
            self.screen_of_run.add_note(f"… {size(skipped)} not shown …")
        lines = self.screen_of_run.line_count if self._above else 0
        self.screen_of_run.feed_bytes(data)
        if self._above:  # scrolled back: the lines in view stay in place
            self._above += max(self.screen_of_run.line_count - lines, 0)

    def collect(self, now: Parts, findings: Sequence[Finding]) -> OutputState:
        return OutputState(
            version=self.screen_of_run.version,
            above=self._above,
            skipped_bytes=self._skipped_bytes,
            has_output=self.tail is not None,
            mode=now.session.header.mode if now.session.header else "run",
            note=next((plain(notice.message) for notice in self.notices(now)), None),
        )

    def draw(self, state: OutputState, width: int, height: int) -> list[Line]:
        notes = [clip(line((state.note, "dim")), width)] if state.note else []
        if not state.has_output:
            why = "not captured: it goes where the training was started" if state.mode == "attach" else "not recorded"
            note = line((" · ", "faint"), (state.note, "text")) if state.note else ()
            return [clip((*line(("Output ", "text bold"), (why, "dim")), *note), width)]
        room = height - len(notes)
        self._above = max(0, min(self._above, self.screen_of_run.line_count - 1))
        rows = broken_lines(self.screen_of_run.tail(room, self._above), width)[-room:]
        if rows == [()]:
            rows = [line(("nothing printed yet", "dim"))]
        return [*rows, *[()] * (room - len(rows)), *notes]

    def rows_wanted(self, width: int, most: int) -> int:
        return super().rows_wanted(width, most) if self.tail is not None else 0

    def heading(self, state: OutputState) -> tuple[Span, ...]:
        """The title, with how far it is scrolled back and how much was left out."""
        spans = [Span("3 ", "key"), Span("Output", "text bold")]
        if state.skipped_bytes:
            spans.append(Span(f" · {size(state.skipped_bytes)} not shown", "warning"))
        if state.above:
            spans.append(Span(f" · {state.above} lines back (End: newest)", "warning"))
        return tuple(spans)

    def action_move(self, rows_down: int) -> None:
        """Scroll through the history."""
        self._above = max(0, min(self._above - rows_down, max(self.screen_of_run.line_count - 1, 0)))
        if self.state is not None:
            self.state = self.state._replace(above=self._above)
            self.redraw(force=True)
