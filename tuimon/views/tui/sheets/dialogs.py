"""Questions over the screen: at quitting while a launched run goes on, and before hooks are brought into a training."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual.app import App
from textual.binding import Binding, BindingType

from tuimon.errors import CannotInject
from tuimon.views.tui.drawing.lines import Line, line, paragraph
from tuimon.views.tui.sheets.sheet import Overlay

if TYPE_CHECKING:
    from tuimon.monitor.hooks import Hooks
    from tuimon.monitor.monitor import Monitor

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
    """The text of the quit dialog."""
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
    """A key and what it does."""
    return line(" ", (f" {key} ", "key badge"), " ", (text, f"{role} bold"))


class InjectDialog(Overlay[bool]):
    """Says what bringing the hooks in does and risks; returns True if the user agrees."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("I,enter", "dismiss(True)", show=False),
        Binding("c,escape,q,ctrl+c", "dismiss(False)", show=False, priority=True),
    ]

    def __init__(self) -> None:
        super().__init__("Measure steps and phases", self.lines)

    def lines(self, width: int) -> list[Line]:
        """The text."""
        from tuimon.monitor.hooks import RISK  # noqa: PLC0415  (only an attach loads them)

        keys = [key_line("I", "bring them in", "warning"), key_line("c", "cancel", "text")]
        return [*paragraph(f"I {RISK}", width, "text"), (), *keys]


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
        with contextlib.suppress(RuntimeError):  # the app has been left meanwhile
            app.call_from_thread(app.notify, text, severity=severity, markup=False, timeout=15)

    if hooks.are_missing():
        app.push_screen(InjectDialog(), answered)
    else:
        app.notify("the training has its hooks already", markup=False)
