"""The picker: choose which running training to watch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Key
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tuimon.views.format import percent, plain
from tuimon.views.tui.drawing.canvas import content_of
from tuimon.views.tui.drawing.lines import Column, Line, Span, head_line, line, row_line
from tuimon.views.tui.terminal_app import Capabilities, TerminalApp

_KEYS = line(
    ("Enter", "key bold"), (" watch  ", "dim"), ("type", "key bold"), (" to filter  ", "dim"), ("Esc", "key bold"),
    (" quit", "dim")
)  # fmt: skip


class PickerRow(NamedTuple):
    """A process that can be watched."""

    pid: int
    command: list[str]
    user: str
    cpu_ratio: float | None  # 1.0 = one core
    markers: bool  # True if steps and phases are measured, not inferred
    helps: bool = False  # the process makes none of its run's steps


class Picker(TerminalApp[int]):
    """Returns the chosen pid, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c,ctrl+q,escape", "leave", show=False, priority=True)]

    def __init__(self, candidates: Sequence[PickerRow], capabilities: Capabilities | None = None) -> None:
        super().__init__(capabilities)
        self._candidates = list(candidates)
        self._filter_text = ""
        self.list = OptionList(id="candidates")

    def compose(self) -> ComposeResult:
        self.list.border_subtitle = self._drawn(_KEYS)
        yield self.list

    def matching(self) -> list[PickerRow]:
        """The processes that match the filter; helper processes are listed only if there is one."""
        text = self._filter_text.lower()
        if not text:
            return [c for c in self._candidates if not c.helps]
        return [c for c in self._candidates if text in f"{c.pid} {c.user} {' '.join(c.command)}".lower()]

    def on_resize(self) -> None:
        self.update()

    def update(self) -> None:
        """List what passes the filter."""
        matching = self.matching()
        title = [Span("Which training?", "text bold"), Span(f" · {len(matching)} of {len(self._candidates)}", "dim")]
        if self._filter_text:
            title.append(Span(f" · “{plain(self._filter_text)}”", "warning"))
        self.list.border_title = self._drawn(tuple(title))
        columns: list[Column[PickerRow]] = [
            Column("pid", 9, lambda row: (str(row.pid), "strong")),
            Column("user", 11, lambda row: (plain(row.user), "dim"), gap=1),
            Column("cpu", 6, lambda row: (percent(row.cpu_ratio), "text"), ">", 2),
            Column("markers", 9, lambda row: ("yes", "benign") if row.markers else ("no", "dim")),
            Column("command", max(self.size.width - 42, 8), lambda row: (plain(" ".join(row.command)) or "–", "text")),
        ]
        rows = [Option(self._drawn(row_line(columns, row)), str(row.pid)) for row in matching]
        note = ""
        if not self._candidates:
            note = "No training runs: no process of yours has torch loaded, or markers."
        elif not self._filter_text and (helping := len(self._candidates) - len(matching)):
            note = f"{helping} more of these runs without a step: type to find them"
        elif not matching:
            note = "Nothing matches; Backspace widens the filter."
        head, below = (Option(self._drawn(each), disabled=True) for each in (head_line(columns), line((note, "dim"))))
        self.list.set_options([head, *rows, below])
        self.list.action_first()

    def _drawn(self, row: Line) -> Content:
        return content_of([row], self)

    def on_key(self, event: Key) -> None:
        """Add printable keys to the filter's text."""
        if event.key == "backspace":
            self._filter_text = self._filter_text[:-1]
        elif event.is_printable and event.character:
            self._filter_text += event.character
        else:
            return
        self.update()

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        """Return the process."""
        self.exit(int(message.option_id or 0))

    def action_leave(self) -> None:
        self.exit(None)


def pick(candidates: Sequence[PickerRow]) -> int | None:
    """Let the user choose one of the processes; None when they chose none."""
    return Picker(candidates).run()
