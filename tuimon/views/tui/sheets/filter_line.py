"""The line in which the text to filter threads by is typed."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from tuimon.views.tui.panes.threads_pane import ThreadsPane


class FilterLine(Input):
    """Filters while one types; Enter keeps the filter, Esc clears it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", show=False)]

    def __init__(self, threads: ThreadsPane) -> None:
        super().__init__(
            threads.filter_text, placeholder="filter threads: role, name, state, file or code", id="filter"
        )
        self._threads = threads

    def on_input_changed(self, event: Input.Changed) -> None:
        """Every key counts at once."""
        event.stop()
        self._threads.filter_by(event.value)

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter."""
        event.stop()
        self._threads.focus()
        await self.remove()

    async def action_cancel(self) -> None:
        """Clear the filter."""
        self._threads.filter_by("")
        self._threads.focus()
        await self.remove()
