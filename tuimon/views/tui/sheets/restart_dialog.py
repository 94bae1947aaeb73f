"""The question before a training that still runs is ended and started again."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from tuimon.views.tui.drawing.lines import Line, Span, line, paragraph
from tuimon.views.tui.sheets.quit_dialog import QuitDialog, key_line


class RestartDialog(QuitDialog, inherit_bindings=False):
    """Dismissed with ``ended`` once the run has ended, with ``cancel`` where it is to go on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "end", show=False),
        Binding("c,escape,q", "choose('cancel')", show=False),
        Binding("ctrl+c", "choose('cancel')", show=False, priority=True),
    ]
    TITLE_TEXT = "Start again"

    def lines(self, pid: int, ending: str | None, width: int) -> list[Line]:
        """The lines of the dialog, before and while the run is being ended."""
        if ending is not None:
            return [
                *paragraph(f"Ending the training (pid {pid}); then it starts again …", width, "strong"),
                (),
                *paragraph(ending, width, "warning"),
                (),
                key_line("c", "back to the screen: it ends, and does not start again", "text"),
            ]
        return [
            *paragraph(f"The training (pid {pid}) is still running.", width, "strong"),
            (),
            key_line("e", "end it and start the same command again", "critical"),
            line("     ", Span("SIGINT, then SIGTERM, then SIGKILL", "dim")),
            key_line("c", "cancel", "text"),
        ]
