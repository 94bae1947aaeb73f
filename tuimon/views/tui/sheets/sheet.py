"""A sheet over the panes: a title and lines to scroll through; and the code around a line, read once and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import ModalScreen, ScreenResultType

from tuimon.views.tui.drawing.canvas import Canvas
from tuimon.views.tui.drawing.lines import Line, Span, line
from tuimon.views.tui.drawing.moving import MOVE_KEYS, Moving

if TYPE_CHECKING:
    from tuimon.records import Place, Process
    from tuimon.sources.source_text import CloseUp

#: Lines for a width; called at every tick, so that a sheet stays live.
Build = Callable[[int], list[Line]]


class Overlay(ModalScreen[ScreenResultType]):
    """A screen over the board, drawn anew with every tick while it is open.

    It is dismissed once, whatever a tick, a key or a second key still ask of it.
    """

    def update(self) -> None:
        """Show what is known now."""
        raise NotImplementedError

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close it; do nothing when it is closed already, where Textual would take away the screen below."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class SheetBody(Moving, Canvas, can_focus=True):
    """The lines of a sheet, to scroll through."""

    BINDINGS: ClassVar[list[BindingType]] = [*MOVE_KEYS, Binding("space", "move(10)", show=False)]

    def __init__(self, title: str, build: Build) -> None:
        super().__init__()
        self._heading = title
        self._build = build
        self._wanted = 0
        self._top = 0

    def update(self) -> None:
        """Build the lines again and show those in view; the title says how many follow."""
        width, height = self.content_size
        if not height:
            return
        lines = self._build(width)
        if len(lines) != self._wanted:  # the sheet is as high as its text; the style sheet bounds it
            self._wanted = len(lines)
            self.styles.height = len(lines) + self.gutter.height
        self._top = max(0, min(self._top, len(lines) - height))
        below = len(lines) - height - self._top
        more = Span(f" · {below} more lines below" if below > 0 else "", "dim")
        self.set_title(Span(self._heading, "text bold"), more, Span(" · Esc closes", "dim"))
        self.show_lines(lines[self._top : self._top + height])

    def on_resize(self) -> None:
        """The lines follow the size."""
        self.update()

    def action_move(self, rows_down: int) -> None:
        """Scroll."""
        self._top = max(0, self._top + rows_down)
        self.update()

    def show_from(self, index: int) -> None:
        """Scroll so that a line is the first in view."""
        self._top = index
        self.update()


class Sheet(Overlay[None]):
    """Lines over the panes until Esc."""

    AUTO_FOCUS = "SheetBody"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,left,question_mark", "dismiss", "close", show=False)
    ]

    def __init__(self, title: str, build: Build) -> None:
        super().__init__()
        self.body = SheetBody(title, build)

    def compose(self) -> ComposeResult:
        """The one body."""
        yield self.body

    def update(self) -> None:
        """Build the lines again at a tick."""
        self.body.update()


#: Lines with their numbers.
Code = Sequence[tuple[int, str]]
_KEPT_MOST = 256


def no_code(_where: Place) -> Code:
    """For where code cannot be read."""
    return ()


class CodeAround:
    """The code that a sheet has read of the user's files; the end of its worker notifies the sheet of more."""

    def __init__(self, sheet: DOMNode, closeup: CloseUp | None) -> None:
        self._sheet = sheet
        self._closeup = closeup
        self._requested: set[tuple[str, int]] = set()
        self._read: dict[tuple[str, int], Code] = {}

    def of(self, file: str, number: int, process: Process | None, not_after_unix_s: float | None = None) -> Code:
        """The lines around one, if they have been read; else reading them as ``process`` could is requested."""
        key = (file, number)
        if (
            process is not None
            and self._closeup is not None
            and key not in self._requested
            and len(self._requested) < _KEPT_MOST
        ):
            self._requested.add(key)
            closeup, by = self._closeup, process

            def read() -> None:
                self._read[key] = closeup.code(*key, by, not_after_unix_s)

            self._sheet.run_worker(read, thread=True)
        return self._read.get(key, ())


def code_lines(code: Code, number: int) -> list[Line]:
    """Numbered lines of code, the one meant marked."""
    digits = max((len(str(n)) for n, _ in code), default=0)
    common = min((len(text) - len(text.lstrip()) for _, text in code if text.strip()), default=0)
    return [
        line(
            "    ",
            (f"{n:>{digits}} ", "key bold" if n == number else "faint"),
            ("▏" if n == number else "│", "key bold" if n == number else "faint"),
            (f" {text[common:]}", "strong" if n == number else "dim"),
        )
        for n, text in code
    ]
