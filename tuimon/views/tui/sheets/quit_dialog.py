"""The question at quitting while a launched run goes on: leave it, end it, or stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tuimon.views.tui.drawing.canvas import Canvas
from tuimon.views.tui.drawing.lines import Line, Span, line, paragraph

if TYPE_CHECKING:
    from tuimon.monitor.monitor import Monitor

Choice = Literal["leave", "ended", "cancel"]


class QuitBody(Canvas, can_focus=True):
    """The text of the dialog."""


class QuitDialog(ModalScreen[Choice]):
    """Dismissed with what is to happen; ``ended`` once the run that was to be ended has ended."""

    AUTO_FOCUS = "QuitBody"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,ctrl+c", "choose('leave')", show=False, priority=True),
        Binding("e", "end", show=False),
        Binding("c,escape,q", "choose('cancel')", show=False),
    ]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self._monitor = monitor
        self.body = QuitBody()

    def compose(self) -> ComposeResult:
        """The one body."""
        yield self.body

    def on_mount(self) -> None:
        """Set its title."""
        self.body.set_title(Span("Quit", "text bold"))

    def on_resize(self) -> None:
        """Draw."""
        self.call_after_refresh(self.update)

    def update(self) -> None:
        """A tick passed: show how far ending has come, close when the run is over."""
        if self._monitor.ended:
            self.dismiss("ended" if self._monitor.ending is not None else "cancel")
            return
        launched = self._monitor.launched
        self.body.show_lines(
            quit_lines(launched.pid if launched else 0, self._monitor.ending, self.body.content_size.width)
        )

    def action_end(self) -> None:
        """Begin to end the run; the dialog stays and shows the stages."""
        if self._monitor.ending is None:
            self._monitor.begin_end()
        self.update()

    def action_choose(self, choice: Choice) -> None:
        """Close the dialog."""
        self.dismiss(choice)


def quit_lines(pid: int, ending: str | None, width: int) -> list[Line]:
    """What the dialog shows before and while the run is being ended."""
    if ending is not None:
        return [
            *paragraph(f"Ending the training (pid {pid}) …", width, "strong"),
            (),
            *paragraph(ending, width, "warning"),
            (),
            _key("l", "leave now and let it finish ending", "text"),
            _key("c", "back to the picture", "text"),
        ]
    return [
        *paragraph(f"The training (pid {pid}) is still running.", width, "strong"),
        (),
        _key("l", "leave it running", "benign"),
        line("     ", (f"come back with: tuimon attach {pid}", "dim")),
        _key("e", "end it", "critical"),
        line("     ", ("SIGINT, then SIGTERM, then SIGKILL", "dim")),
        _key("c", "cancel", "text"),
    ]


def _key(key: str, text: str, role: str) -> Line:
    return line(" ", (f" {key} ", "key badge"), " ", (text, f"{role} bold"))
