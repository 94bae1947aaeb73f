"""Overlays: sheets with lines to scroll through, and questions; also a cache of the code around a line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.geometry import Size
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget

from tuimon.bounds import HELD
from tuimon.errors import CannotInject
from tuimon.text import function_text, plain
from tuimon.views.tui.drawing.canvas import content_of
from tuimon.views.tui.drawing.lines import Line, Span, line, paragraph, place_column

if TYPE_CHECKING:
    from tuimon.monitor.hooks import Hooks
    from tuimon.monitor.monitor import Monitor
    from tuimon.records import Frame, MemoryLine, Place
    from tuimon.session.session import Session
    from tuimon.sources.source_text import CloseUp

#: Lines for a width; called at every tick, so that a sheet stays live.
Build = Callable[[int], list[Line]]


class SheetText(Widget):
    """Lines one below the other, made for the given width."""

    def __init__(self, build: Build) -> None:
        super().__init__()
        self._build = build
        self.lines: Sequence[Line] = ()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self.lines = self._build(width)
        return len(self.lines)

    def render(self) -> Content:
        return content_of(self.lines, self.app)

    def update(self) -> None:
        """Build the lines again; they are placed and painted again only if they changed."""
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
        """The height of the lines at the width that the scroll bar leaves; Textual would take the full width."""
        return super().get_content_height(container, viewport, width - self.scrollbar_size_vertical)


class Overlay(ModalScreen[ScreenResultType]):
    """Lines over the board, rebuilt at every tick while it is open.

    It is dismissed only once, even if a tick or another key asks for it again.
    """

    AUTO_FOCUS = "SheetBody"

    def __init__(self, title: str, build: Build) -> None:
        super().__init__()
        self._heading = title
        self.text = SheetText(build)
        self.body = SheetBody(self.text)

    def compose(self) -> ComposeResult:
        title = (Span(self._heading, "text bold"), Span(" · Esc closes", "dim"))
        self.body.border_title = content_of([title], self.app)
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


Choice = Literal["leave", "ended", "cancel"]


class QuitDialog(Overlay[Choice]):
    """Asks what to do with the run, and returns the choice; ``ended`` if the user chose to end it and it has ended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,ctrl+c", "dismiss('leave')", show=False, priority=True),
        Binding("e", "end", show=False),
        Binding("c,escape,q", "dismiss('cancel')", show=False),
    ]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__("Quit", self.lines)
        self._monitor = monitor

    def update(self) -> None:
        """A tick passed: show how far ending has come, close when the run is over."""
        if self._monitor.ended:
            self.dismiss("ended" if self._monitor.ending is not None else "cancel")
        else:
            super().update()

    def lines(self, width: int) -> list[Line]:
        """The text, before and while the run is being ended."""
        launched = self._monitor.launched
        return quit_lines(launched.pid if launched is not None else 0, self._monitor.ending, width)

    def action_end(self) -> None:
        """Begin to end the run; the dialog stays and shows the stages."""
        if self._monitor.ending is None:
            self._monitor.begin_end()
        self.update()


def quit_lines(pid: int, ending: str | None, width: int) -> list[Line]:
    if ending is not None:
        return [
            *paragraph(f"Ending the training (pid {pid}) …", width, "strong"),
            (),
            *paragraph(ending, width, "warning"),
            (),
            key_line("l", "leave now and let it finish ending", "text"),
            key_line("c", "back to the screen", "text"),
        ]
    return [
        *paragraph(f"The training (pid {pid}) is still running.", width, "strong"),
        (),
        key_line("l", "leave it running", "benign"),
        *paragraph(f"come back with: tuimon attach {pid}", width, "dim", indent=5),
        key_line("e", "end it", "critical"),
        *paragraph("SIGINT, then SIGTERM, then SIGKILL", width, "dim", indent=5),
        key_line("c", "cancel", "text"),
    ]


def key_line(key: str, text: str, role: str) -> Line:
    return line(" ", (f" {key} ", "key badge"), " ", (text, f"{role} bold"))


class InjectDialog(Overlay[bool]):
    """Explains the effect and the risk of bringing the hooks in; returns True if the user agrees."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("I,enter", "dismiss(True)", show=False),
        Binding("c,escape,q,ctrl+c", "dismiss(False)", show=False, priority=True),
    ]

    def __init__(self) -> None:
        super().__init__("Measure steps and phases", self.lines)

    def lines(self, width: int) -> list[Line]:
        from tuimon.monitor.hooks import RISK  # noqa: PLC0415  (only an attach loads them)

        keys = [key_line("I", "bring them in", "warning"), key_line("c", "cancel", "text")]
        return [*paragraph(f"This {RISK}", width, "text"), (), *keys]


def ask_to_inject(app: App[Any], hooks: Hooks) -> None:  # Any: whatever it returns
    """Open the dialog, and bring the hooks in if the user agrees; or report that the training has them already."""

    def answered(agreed: bool | None) -> None:
        if agreed:
            app.notify("bringing the hooks in …", markup=False)
            app.run_worker(bring_in, thread=True, exit_on_error=False, exclusive=True)

    def bring_in() -> None:
        """Runs on a thread of its own, as it may take as long as the training's longest call."""
        try:
            text, severity = hooks.bring_in(), "information"
        except CannotInject as error:
            text, severity = f"{error.message}. {error.hint or ''}", "error"
        with contextlib.suppress(RuntimeError):  # the app has been left
            app.call_from_thread(app.notify, text, severity=severity, markup=False, timeout=15)

    if hooks.are_missing():
        app.push_screen(InjectDialog(), answered)
    else:
        app.notify("the training has its hooks already", markup=False)


#: Lines with their numbers.
CodeLines = Sequence[tuple[int, str]]


class CodeAround:
    """Code around lines: read from the user's files if that is possible, else as samples have recorded it."""

    def __init__(self, widget: DOMNode, closeup: CloseUp | None, changed: Callable[[], None]) -> None:
        """``changed`` is called when more has been read."""
        self._widget = widget
        self._closeup = closeup
        self._changed = changed
        self._read: dict[tuple[str, int], CodeLines] = {}  # empty while it is being read

    def of(self, at: Frame | Place, most: int, session: Session, pid: int) -> CodeLines:
        """At most ``most`` lines before and after a line.

        Its file is read as this process could, on another thread, unless it changed since any process began; until
        then only what samples have recorded is known.
        """
        key, process, closeup = (at.file, at.line), session.process(pid), self._closeup
        if process is not None and closeup is not None and key not in self._read and len(self._read) < HELD:
            self._read[key] = ()
            began_unix_s = min(each.start_unix_s for each in session.processes())

            async def read() -> None:
                self._read[key] = await asyncio.to_thread(closeup.code, *key, process, began_unix_s)
                self._changed()

            self._widget.run_worker(read())
        code = self._read.get(key) or session.trie.lines_near(*key, most)
        return [(number, text) for number, text in code if abs(number - at.line) <= most]


def frame_line(frame: Frame | MemoryLine, spot: int, before: Span) -> Line:
    """A line of code: place, function, text; the user's are bright."""
    at, name = ("key", "strong") if frame.user else ("dim", "dim")
    return line(
        before,
        *place_column(frame, spot, at),
        (function_text(frame.function), name),
        (f"  {plain(frame.source).strip()}" if frame.source else "", "text"),
    )


def code_lines(code: CodeLines, number: int) -> list[Line]:
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
