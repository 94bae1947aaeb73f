"""What our apps have in common: our themes, and what the terminal at hand can show."""

from __future__ import annotations

import os
import sys

from textual.app import App, ReturnType

from tuimon.views.tui import palette
from tuimon.views.tui.glyphs import terminal_has_unicode
from tuimon.views.tui.pane import Canvas


class TerminalApp(App[ReturnType]):
    """An app with our style sheet and themes, which degrades with its terminal."""

    CSS_PATH = "tuimon.tcss"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self) -> None:
        mono = "NO_COLOR" in os.environ  # asked before textual takes it out of the environment
        super().__init__(ansi_color=True if mono else None)
        Canvas.mono = mono
        Canvas.unicode = terminal_has_unicode(os.environ, getattr(sys.__stderr__, "encoding", None) or "utf-8")
        self._dark, self._light = palette.themes_for(self.console.color_system)
        self.register_theme(self._dark)
        self.register_theme(self._light)
        self.theme = self._dark.name
        self.set_class(not Canvas.unicode, "-ascii")
        self.set_class(mono, "-mono")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our colours, known before our themes are."""
        return palette.DEFAULTS

    def action_theme(self) -> None:
        """Dark or light."""
        self.theme = self._light.name if self.theme == self._dark.name else self._dark.name
