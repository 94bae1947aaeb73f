"""The last line: the keys that work now."""

from __future__ import annotations

from textual.binding import Binding
from textual.events import Click

from tuimon.views.tui.drawing.canvas import Canvas
from tuimon.views.tui.drawing.lines import Line, Span, cells


class KeysLine(Canvas):
    """Keys and what they do, as their bindings say, those of the focused pane first; a click on one does it."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._left_out: str | None = None

    def on_mount(self) -> None:
        """Follow the focus."""
        super().on_mount()
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.fit())

    def leave_out(self, action: str | None) -> None:
        """Show all keys but that of this action."""
        if action != self._left_out:
            self._left_out = action
            self.fit()

    def fit(self) -> None:
        """Show as many as fit."""
        self.show_lines([self._line([])])

    def on_click(self, event: Click) -> None:
        """Press the key under the pointer."""
        ends: list[tuple[int, Binding]] = []
        self._line(ends)
        key = next((binding.key for end, binding in ends if event.x <= end), None)
        if key is not None:
            self.app.simulate_key(key)

    def _line(self, ends: list[tuple[int, Binding]]) -> Line:
        """``q quit  ? help …``; where each ends goes to ``ends``."""
        spans: list[Span] = [Span(" ")]
        bindings: dict[str, Binding] = {}
        for active in self.screen.active_bindings.values():
            if active.binding.show and active.binding.action != self._left_out:
                bindings.setdefault(active.binding.action, active.binding)
        for binding in bindings.values():
            key = Span(self.app.get_key_display(binding), "key bold")
            part = (key, Span(f" {binding.description}", "dim"), Span("  "))
            if cells(spans) + cells(part) - 2 > self.content_size.width:
                break
            spans += part
            ends.append((cells(spans) - 2, binding))
        return tuple(spans[:-1])
