"""The question before hooks are brought into a training: what it does, and what the risk is."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tuimon.monitor.hooks import RISK
from tuimon.views.tui.drawing.canvas import Canvas
from tuimon.views.tui.drawing.lines import Line, Span, line, paragraph
from tuimon.views.tui.sheets.overlay import Overlay


class InjectBody(Canvas, can_focus=True):
    """The text of the dialog."""


class InjectDialog(Overlay[bool]):
    """Dismissed with whether to do it."""

    AUTO_FOCUS = "InjectBody"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("I,enter", "choose(True)", show=False),
        Binding("c,escape,q,ctrl+c", "choose(False)", show=False, priority=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.body = InjectBody()

    def compose(self) -> ComposeResult:
        """The one body."""
        yield self.body

    def on_mount(self) -> None:
        """Set its title."""
        self.body.set_title(Span("Measure steps and phases", "text bold"))

    def on_resize(self) -> None:
        """Draw."""
        self.call_after_refresh(self.update)

    def update(self) -> None:
        """Draw."""
        self.body.show_lines(inject_lines(self.body.content_size.width))

    def action_choose(self, agreed: bool) -> None:
        """Close the dialog."""
        self.dismiss(agreed)


def inject_lines(width: int) -> list[Line]:
    """The lines of the dialog."""
    return [
        *paragraph(f"I {RISK}", width, "text"),
        (),
        line(" ", (" I ", "key badge"), " ", ("bring them in", "warning bold")),
        line(" ", (" c ", "key badge"), " ", ("cancel", "text bold")),
    ]
