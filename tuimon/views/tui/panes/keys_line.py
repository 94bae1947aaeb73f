"""The last line: the keys that work now."""

from __future__ import annotations

from collections.abc import Sequence

from textual.events import Click

from tuimon.views.tui.drawing.canvas import Canvas
from tuimon.views.tui.drawing.lines import Line, Span, cells

#: (key, word, action of the app), the most important first: where room is short the last are left out.
KEYS: tuple[tuple[str, str, str], ...] = (
    ("q", "quit", "leave"),
    ("?", "help", "help"),
    ("space", "pause", "pause"),
    ("z", "zoom", "zoom"),
    ("/", "filter", "filter"),
    ("s", "sort", "sort"),
    ("v", "verdicts", "findings"),
    ("h", "hot lines", "profile('lines')"),
    ("c", "calls", "profile('tree')"),
    ("K", "trace", "trace"),
    ("1-6", "panes", ""),
    ("Tab", "focus", ""),
    ("d", "light/dark", "theme"),
    ("e", "export", "export"),
)
#: While the profile is open.
PROFILE_KEYS: tuple[tuple[str, str, str], ...] = (
    ("Esc", "back", "step_back"),
    ("h", "lines", "profile('lines')"),
    ("c", "tree", "profile('tree')"),
    ("f", "phase", ""),
    ("t", "threads", ""),
    ("Enter", "open", ""),
    ("s", "sort", ""),
    ("u", "library lines", ""),
    ("space", "pause", "pause"),
    ("?", "help", "help"),
    ("q", "quit", "leave"),
)
#: While the ranks are shown.
RANKS_KEYS: tuple[tuple[str, str, str], ...] = (
    ("Esc", "back", "step_back"),
    ("Enter", "show in all panes", ""),
    ("s", "sort", ""),
    ("space", "pause", "pause"),
    ("v", "verdicts", "findings"),
    ("?", "help", "help"),
    ("q", "quit", "leave"),
)
#: For a run of several ranks or trainings.
KEYS_OF_SEVERAL = (*KEYS[:2], ("r", "ranks", "ranks"), *KEYS[2:])
#: By the pane that is shown alone.
KEYS_OF = {"profile": PROFILE_KEYS, "ranks": RANKS_KEYS}


class KeysLine(Canvas):
    """Keys and what they do; a click on one does it."""

    def __init__(self, keys: Sequence[tuple[str, str, str]] = KEYS, id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys = keys

    def show_keys(self, keys: Sequence[tuple[str, str, str]]) -> None:
        """Show these keys."""
        if keys != self._keys:
            self._keys = keys
            self.fit()

    def fit(self) -> None:
        """Show as many as fit."""
        self.show_lines([keys_line(self._keys, self.content_size.width)])

    async def on_click(self, event: Click) -> None:
        """Run the action under the pointer."""
        x = 1
        for key, word, action in self._keys:
            x_end = x + len(key) + len(word) + 1
            if x <= event.x < x_end and action:
                await self.app.run_action(action)
            x = x_end + 2


def keys_line(keys: Sequence[tuple[str, str, str]], width: int) -> Line:
    """``q quit  ? help …`` in at most ``width`` cells."""
    spans: list[Span] = [Span(" ")]
    for key, word, _ in keys:
        part = (Span(key, "key bold"), Span(f" {word}", "dim"), Span("  "))
        if cells(spans) + cells(part) - 2 > width:
            break
        spans += part
    return tuple(spans[:-1])
