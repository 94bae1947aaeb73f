"""A sheet over the panes: a title and lines to scroll through; and the code around a line, read once and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.geometry import Size
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget

from tuimon.views.tui.drawing.canvas import content_of
from tuimon.views.tui.drawing.lines import Line, Span, line

if TYPE_CHECKING:
    from tuimon.records import Frame, Place
    from tuimon.session.session import Session
    from tuimon.sources.source_text import CloseUp

#: Lines for a width; called at every tick, so that a sheet stays live.
Build = Callable[[int], list[Line]]


class SheetText(Widget):
    """Lines one below the other, made for the width at hand."""

    def __init__(self, build: Build) -> None:
        super().__init__()
        self._build = build
        self.lines: Sequence[Line] = ()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are lines."""
        self.lines = self._build(width)
        return len(self.lines)

    def render(self) -> Content:
        """The lines."""
        return content_of(self.lines, self.app.theme_variables)

    def update(self) -> None:
        """Build the lines again; only if they changed, they are placed and painted anew."""
        lines = self._build(self.size.width) if self.size else self.lines  # no size yet: not placed
        if lines != self.lines:
            self.lines = lines
            self.refresh(layout=True)


class SheetBody(VerticalScroll):
    """Scrolls through the lines by keys, wheel and bar; what is selected by mouse is copied."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
        Binding("space", "page_down", show=False),
    ]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The height of the lines at the width beside the scroll bar; Textual would take the full width."""
        return super().get_content_height(container, viewport, width - self.scrollbar_size_vertical)


class Overlay(ModalScreen[ScreenResultType]):
    """Lines over the board, built anew with every tick while it is open.

    It is dismissed only once, even if a tick or another key asks for it again.
    """

    AUTO_FOCUS = "SheetBody"

    def __init__(self, title: str, build: Build) -> None:
        super().__init__()
        self._heading = title
        self.text = SheetText(build)
        self.body = SheetBody(self.text)

    def compose(self) -> ComposeResult:
        """The one body."""
        title = (Span(self._heading, "text bold"), Span(" · Esc closes", "dim"))
        self.body.border_title = content_of([title], self.app.theme_variables)
        yield self.body

    def update(self) -> None:
        """Show what is known now."""
        self.text.update()

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close the overlay, unless it is closed already: Textual would then close the screen below."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class Sheet(Overlay[None]):
    """Lines over the panes until Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,left,question_mark", "dismiss", "close", show=False)
    ]


#: Lines with their numbers.
Code = Sequence[tuple[int, str]]
_KEPT_MOST = 256


class CodeAround:
    """Code around lines: read from the user's files, as far as that is possible, else as samples have recorded it."""

    def __init__(self, widget: DOMNode, closeup: CloseUp | None, changed: Callable[[], None]) -> None:
        """``changed`` is called when more has been read."""
        self._widget = widget
        self._closeup = closeup
        self._changed = changed
        self._read: dict[tuple[str, int], Code] = {}  # empty while it is being read

    def of(self, at: Frame | Place, most: int, session: Session, pid: int) -> Code:
        """At most ``most`` lines before and after a line.

        Its file is read as this process could, on another thread, unless it changed since any process began; until
        then only what samples have recorded is known.
        """
        key, process, closeup = (at.file, at.line), session.process(pid), self._closeup
        if process is not None and closeup is not None and key not in self._read and len(self._read) < _KEPT_MOST:
            self._read[key] = ()
            began_unix_s = min(each.start_unix_s for each in session.processes())

            async def read() -> None:
                self._read[key] = await asyncio.to_thread(closeup.code, *key, process, began_unix_s)
                self._changed()

            self._widget.run_worker(read())
        code = self._read.get(key) or session.trie.lines_near(*key, most)
        return [(number, text) for number, text in code if abs(number - at.line) <= most]


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
