"""The question before hooks are brought into a training that was attached to, and how that went."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from tuimon.errors import CannotInject
from tuimon.monitor.hooks import RISK, Hooks
from tuimon.views.tui.drawing.lines import Line, paragraph
from tuimon.views.tui.sheets.quit_dialog import Dialog, key_line


class InjectDialog(Dialog[bool]):
    """What it does, and what the risk is. Dismissed with whether to do it."""

    HEADING = "Measure steps and phases"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("I,enter", "choose(True)", show=False),
        Binding("c,escape,q,ctrl+c", "choose(False)", show=False, priority=True),
    ]

    def lines(self, width: int) -> list[Line]:
        """The text."""
        keys = [key_line("I", "bring them in", "warning"), key_line("c", "cancel", "text")]
        return [*paragraph(f"I {RISK}", width, "text"), (), *keys]

    def action_choose(self, agreed: bool) -> None:
        """Close the dialog."""
        self.dismiss(agreed)


def ask_to_inject(app: App[Any], hooks: Hooks) -> None:  # Any: whatever it returns
    """Open the dialog, and bring the hooks in if the user agrees; or say why there is nothing to ask."""

    def answered(agreed: bool | None) -> None:
        if agreed:
            app.notify("bringing the hooks in …", markup=False)
            app.run_worker(partial(_bring_in, app, hooks), thread=True, exit_on_error=False, exclusive=True)

    if hooks.are_missing():
        app.push_screen(InjectDialog(), answered)
    else:
        app.notify("the training has its hooks already", markup=False)


def _bring_in(app: App[Any], hooks: Hooks) -> None:
    """On a thread of its own: it may take as long as the training's longest call."""
    try:
        text, severity = hooks.bring_in(), "information"
    except CannotInject as error:
        text, severity = f"{error.message}. {error.hint or ''}", "error"
    with contextlib.suppress(RuntimeError):  # the app has been left meanwhile
        app.call_from_thread(app.notify, text, severity=severity, markup=False, timeout=15)
