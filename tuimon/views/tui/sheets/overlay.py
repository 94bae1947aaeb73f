"""The base of all overlays."""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType


class Overlay(ModalScreen[ScreenResultType]):
    """A screen over the board that is dismissed once, whatever a tick, a key or a second key still ask of it."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close it; do nothing when it is closed already, where Textual would take away the screen below."""
        return super().dismiss(result) if self.is_active else AwaitComplete()
