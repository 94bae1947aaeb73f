"""The picker: choose which running training to watch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Click, Key

from tuimon.views.format import percent, plain
from tuimon.views.tui.drawing.canvas import Canvas
from tuimon.views.tui.drawing.lines import Column, Span, columns_of, head_line, line, row_line
from tuimon.views.tui.drawing.moving import MOVES, RowCursor
from tuimon.views.tui.panes.keys_line import KeysLine
from tuimon.views.tui.terminal_app import Capabilities, TerminalApp

_KEYS = (("Enter", "watch", "pick"), ("type", "to filter", ""), ("Esc", "quit", "leave"))


class PickerRow(NamedTuple):
    """A process that can be watched."""

    pid: int
    command: list[str]
    user: str
    cpu_ratio: float | None  # 1.0 = one core
    markers: bool  # steps and phases are then measured, not inferred
    helps: bool = False  # it makes none of the steps of its run


class PickerList(Canvas, can_focus=True):
    """The candidates that pass the filter, with a cursor."""

    def __init__(self, candidates: Sequence[PickerRow]) -> None:
        super().__init__(id="candidates")
        self._candidates = list(candidates)
        self._cursor: RowCursor[int] = RowCursor()
        self.filter_text = ""

    def matching(self) -> list[PickerRow]:
        """The processes that contain the filter's text; those that only help are found by it alone."""
        text = self.filter_text.lower()
        if not text:
            return [c for c in self._candidates if not c.helps]
        return [c for c in self._candidates if text in f"{c.pid} {c.user} {' '.join(c.command)}".lower()]

    def chosen(self) -> int | None:
        """The pid under the cursor."""
        keys = self._keys()
        return keys[self._cursor.index(keys)] if keys else None

    def _keys(self) -> list[int]:
        return [row.pid for row in self.matching()]

    def filter_by(self, text: str) -> None:
        """Narrow the list down."""
        self.filter_text, self._cursor.key = text, None
        self.update()

    def move(self, rows_down: int) -> None:
        """Move the cursor."""
        self._cursor.move(self._keys(), rows_down)
        self.update()

    def on_resize(self) -> None:
        """Draw."""
        self.update()

    def update(self) -> None:
        """Draw the list."""
        width, height = self.content_size
        matching = self.matching()
        title = [Span("Which training?", "text bold"), Span(f" · {len(matching)} of {len(self._candidates)}", "dim")]
        if self.filter_text:
            title.append(Span(f" · “{plain(self.filter_text)}”", "warning"))
        self.set_title(*title)
        at = self._cursor.scroll(self._keys(), max(height - 1, 1))
        top = self._cursor.top
        columns = candidate_columns(width)
        rows = [head_line(columns)]
        for index, candidate in enumerate(matching[top : top + height - 1], top):
            rows.append(row_line(columns, candidate, cursor=index == at))
        if not self._candidates:
            rows.append(line(("No training runs: no process of yours has torch loaded, or markers.", "dim")))
        elif not self.filter_text and (helping := len(self._candidates) - len(matching)):
            rows.append(line((f"{helping} more of these runs without a step: type to find them", "dim")))
        elif not matching:
            rows.append(line(("Nothing matches; Backspace widens the filter.", "dim")))
        self.show_lines(rows[:height])

    async def on_click(self, event: Click) -> None:
        """A click chooses; on the chosen one it picks."""
        keys = self._keys()
        index = self._cursor.row_at(int(event.get_content_offset_capture(self).y) - 1, len(keys))
        if index is None:
            return
        if index == self._cursor.index(keys):
            await self.app.run_action("pick")
        self._cursor.key = keys[index]
        self.update()


def candidate_columns(width: int) -> list[Column[PickerRow]]:
    """The columns of the list."""
    return columns_of(
        Column("pid", 9, lambda row: (str(row.pid), "strong")),
        Column("user", 11, lambda row: (plain(row.user), "dim"), gap=1),
        Column("cpu", 6, lambda row: (percent(row.cpu_ratio), "text"), ">", 2),
        Column("markers", 9, lambda row: ("yes", "benign") if row.markers else ("no", "dim")),
        Column("command", max(width - 38, 8), lambda row: (plain(" ".join(row.command)) or "–", "text")),
    )


class Picker(TerminalApp[int]):
    """Returns the chosen pid, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q,escape", "leave", show=False, priority=True),
        Binding("enter", "pick", show=False, priority=True),
    ]

    def __init__(self, candidates: Sequence[PickerRow], capabilities: Capabilities | None = None) -> None:
        super().__init__(capabilities)
        self.list = PickerList(candidates)

    def compose(self) -> ComposeResult:
        """List and keys."""
        yield self.list
        yield KeysLine(_KEYS, id="picker-keys")

    def on_mount(self) -> None:
        """Keys go to the list."""
        self.list.focus()

    def on_key(self, event: Key) -> None:
        """Arrows move, all that prints filters."""
        text = self.list.filter_text
        if event.key in MOVES:
            self.list.move(MOVES[event.key])
        elif event.key == "backspace":
            self.list.filter_by(text[:-1])
        elif event.is_printable and event.character:
            self.list.filter_by(text + event.character)

    def action_pick(self) -> None:
        """Return the process under the cursor."""
        chosen = self.list.chosen()
        if chosen is not None:
            self.exit(chosen)

    def action_leave(self) -> None:
        """Return nothing."""
        self.exit(None)


def pick(candidates: Sequence[PickerRow]) -> int | None:
    """Let the user choose one of the processes; None when they chose none."""
    return Picker(candidates).run()
