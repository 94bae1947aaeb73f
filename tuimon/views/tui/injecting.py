"""Hooks for a training that was attached to: offered on the screen, and brought in while it goes on."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from tuimon.errors import CannotInject

if TYPE_CHECKING:
    from tuimon.monitor.hooks import Hooks
    from tuimon.views.tui.leaving import LeavableApp


class Injecting:
    """Asks whether to bring hooks into the training, and reports how that went."""

    def __init__(self, app: LeavableApp, hooks: Hooks | None) -> None:
        """``hooks``: those of the training; None unless tuimon attached to it."""
        self._app = app
        self._hooks = hooks

    def offer(self) -> None:
        """Name the key, where the training has no hooks."""
        if self._hooks is not None and self._hooks.are_missing():
            self._app.notify("no markers: phases are inferred from samples. I: measure them", markup=False, timeout=10)

    def ask(self) -> None:
        """Open the dialog, or say why there is nothing to ask."""
        if self._hooks is None:
            self._app.notify("only a training that tuimon attached to can have its hooks brought in", markup=False)
        elif self._hooks.are_missing():
            from tuimon.views.tui.sheets.inject_dialog import InjectDialog

            self._app.push_screen(InjectDialog(), partial(self._answered, self._hooks))
        else:
            self._app.notify("the training has its hooks already", markup=False)

    def _answered(self, hooks: Hooks, agreed: bool | None) -> None:
        if agreed:
            self._app.notify("bringing the hooks in …", markup=False)
            self._app.run_worker(partial(self._bring_in, hooks), thread=True, exit_on_error=False, exclusive=True)

    def _bring_in(self, hooks: Hooks) -> None:
        """On a thread of its own: it may take as long as the training's longest call."""
        try:
            text, severity = hooks.bring_in(), "information"
        except CannotInject as error:
            text, severity = f"{error.message}. {error.hint or ''}", "error"
        with contextlib.suppress(RuntimeError):  # the app has been left meanwhile
            self._app.call_from_thread(self._app.notify, text, severity=severity, markup=False, timeout=15)
