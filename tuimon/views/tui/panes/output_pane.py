"""The Output pane: what the run prints, as a terminal would show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import BindingType

from tuimon.views.format import plain, size
from tuimon.views.tui.drawing.lines import Line, Span, clip, line
from tuimon.views.tui.drawing.moving import MOVE_KEYS, Moving
from tuimon.views.tui.drawing.pane import Pane
from tuimon.views.tui.panes.output_screen import OutputScreen, folded

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session
    from tuimon.sources.log.output import OutputTail

#: Bytes to show per tick (which takes about 0.4 us a byte); of more than that only the newest few
#: screens, so that a flood costs little CPU.
BYTES_PER_TICK = 16 * 1024
BYTES_IN_A_FLOOD = 4 * 1024


class OutputState(NamedTuple):
    """The state of the pane."""

    version: int
    above: int
    skipped_bytes: int
    has_output: bool
    mode: str
    note: str | None


class OutputPane(Moving, Pane[OutputState]):
    """The tail of the output; the arrow keys scroll back."""

    BINDINGS: ClassVar[list[BindingType]] = MOVE_KEYS

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.screen_of_run = OutputScreen()
        self.tail: OutputTail | None = None
        self._above = 0
        self._skipped_bytes = 0

    def read_output(self) -> None:
        """Show what was printed since the last call; a flood is cut, and what was cut is counted."""
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
        if self._above:  # scrolled back: what is being read stays where it is
            self._above += max(self.screen_of_run.line_count - lines, 0)

    def has_rows(self) -> bool:
        """True if there is any output to show, not only a line with what is missing."""
        return self.tail is not None

    def collect(self, session: Session, findings: Sequence[Finding]) -> OutputState:
        """The state of the screen."""
        notice = session.notices.get("output")
        return OutputState(
            version=self.screen_of_run.version,
            above=self._above,
            skipped_bytes=self._skipped_bytes,
            has_output=self.tail is not None,
            mode=session.header.mode if session.header else "run",
            note=plain(notice.message) if notice is not None and notice.level != "ok" else None,
        )

    def draw(self, state: OutputState, width: int, height: int) -> list[Line]:
        """The last lines."""
        notes = [clip(line((state.note, "dim")), width)] if state.note else []
        if not state.has_output:
            why = "not captured: the process writes to its own terminal" if state.mode == "attach" else "not recorded"
            note = line((" · ", "faint"), (state.note, "text")) if state.note else ()
            return [clip((*line(("Output ", "text bold"), (why, "dim")), *note), width)]
        room = height - len(notes)
        self._above = max(0, min(self._above, self.screen_of_run.line_count - 1))
        rows = folded(self.screen_of_run.tail(room, self._above), width)[-room:]
        if rows == [()]:
            rows = [line(("nothing printed yet", "dim"))]
        return [*rows, *[()] * (room - len(rows)), *notes]

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
