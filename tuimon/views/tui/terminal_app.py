"""The base of our apps: themes, and the abilities of the terminal at hand."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from textual import on
from textual.app import App, ReturnType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

from tuimon.views.tui.drawing import palette
from tuimon.views.tui.drawing.canvas import Canvas, Glyphs, glyphs_of
from tuimon.views.tui.terminal_driver import TerminalDriver

#: Shown in the place of a traceback.
REPLACED = "tuimon was upgraded or removed while this screen ran, and cannot go on: start tuimon again"


class Capabilities(NamedTuple):
    """The abilities of a terminal."""

    colours: Literal["none", "16", "many"] = "many"
    glyphs: Glyphs = "braille"


class TerminalApp(App[ReturnType]):
    """An app with our style sheet and themes, which degrades with its terminal."""

    CSS_PATH = Path(__file__).with_name("tuimon.tcss")  # a relative path would be resolved beside each subclass
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, capabilities: Capabilities | None = None) -> None:
        """``capabilities``: instead of what the terminal's environment shows."""
        no_color = "NO_COLOR" in os.environ  # before textual takes it out of the environment
        mono = capabilities.colours == "none" if capabilities else no_color
        super().__init__(ansi_color=True if mono else None)
        self._installed = _installation()
        self.terminal_lost = False
        if capabilities is None:
            glyphs = glyphs_of(os.environ, getattr(sys.__stderr__, "encoding", None) or "utf-8")
            few = self.console.color_system == "standard"
            capabilities = Capabilities("none" if mono else "16" if few else "many", glyphs)
        Canvas.mono = mono
        Canvas.characters = capabilities.glyphs
        self._dark, self._light = palette.THEMES_16 if capabilities.colours == "16" else palette.THEMES
        self.register_theme(self._dark)
        self.register_theme(self._light)
        self.theme = self._dark.name
        self.set_class(capabilities.glyphs == "ascii", "-ascii")
        self.set_class(mono, "-mono")

    def get_driver_class(self) -> type[Driver]:
        """Our driver for terminals; another where the environment names one."""
        driver = super().get_driver_class()
        return TerminalDriver if driver is LinuxDriver else driver

    def _handle_exception(self, error: Exception) -> None:
        """Show no traceback of modules of two versions: some are imported only once they are needed."""
        if _installation() == self._installed:
            super()._handle_exception(error)
        else:
            self._return_code = 1
            self.panic(REPLACED)

    @on(TerminalDriver.Lost)
    def leave_lost_terminal(self) -> None:
        """Leave: nobody can see or press anything any more."""
        self.terminal_lost = True
        self.exit()

    @on(TerminalDriver.Stale)
    def redraw_terminal(self) -> None:
        """Draw all of the screen again."""
        self.refresh()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our colours, known before our themes are."""
        return palette.DEFAULTS

    def action_theme(self) -> None:
        """Dark or light."""
        self.theme = self._light.name if self.theme == self._dark.name else self._dark.name


def _installation() -> tuple[int, int] | None:
    """Changes when a package manager writes this file anew; None once it is removed."""
    try:
        found = Path(__file__).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
