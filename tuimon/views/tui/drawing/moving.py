"""Scrolling through rows: its keys, which rows are in view, and a cursor that stays on its row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.events import MouseScrollDown, MouseScrollUp

_WHEEL_ROWS = 3  # that a notch of the wheel moves
_TO_END = 100_000  # rows: more than any list has
#: Key -> rows down.
MOVES = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "home": -_TO_END, "end": _TO_END}
_LETTERS = {"up": ",k", "down": ",j", "home": ",g", "end": ",G"}
#: For a widget with ``Moving``; Textual reads bindings from widget classes only, so that each lists them itself.
MOVE_KEYS: list[BindingType] = [
    Binding(key + _LETTERS.get(key, ""), f"move({rows_down})", show=False) for key, rows_down in MOVES.items()
]

Key = TypeVar("Key", bound=Hashable)


class Moving:
    """A widget whose rows one moves through by ``MOVE_KEYS`` and the mouse wheel."""

    def action_move(self, rows_down: int) -> None:
        """Move or scroll by so many rows."""
        raise NotImplementedError

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """The wheel moves down."""
        self.action_move(_WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """The wheel moves up."""
        self.action_move(-_WHEEL_ROWS)


def scrolled(top: int, at: int, count: int, room: int) -> int:
    """The first of ``count`` rows in view: near ``top``, with row ``at`` in view and no space below the last row."""
    top = max(0, min(top, count - room))
    return min(max(top, at - room + 1), at)


def moved(at: int, rows_down: int, count: int) -> int:
    """The row ``rows_down`` further down, kept within ``count`` rows."""
    return min(max(at + rows_down, 0), count - 1)


class RowCursor(Generic[Key]):
    """A cursor on a row's key: it stays on its row while rows come, go and change places."""

    def __init__(self) -> None:
        self.key: Key | None = None
        self.top = 0  # the first row in view

    def index(self, keys: Sequence[Key]) -> int:
        """The cursor's row; the first where its key is not among the rows."""
        return next((index for index, key in enumerate(keys) if key == self.key), 0)

    def scroll(self, keys: Sequence[Key], room: int) -> int:
        """Bring the cursor's row into the ``room`` rows in view; returns its index."""
        at = self.index(keys)
        self.top = scrolled(self.top, at, len(keys), room)
        return at

    def move(self, keys: Sequence[Key], rows_down: int) -> None:
        """Move within the rows."""
        if keys:
            self.key = keys[moved(self.index(keys), rows_down, len(keys))]

    def row_at(self, y: int, count: int) -> int | None:
        """The index of the row that stands ``y`` rows below the first in view; None where there is none."""
        index = self.top + y
        return index if y >= 0 and 0 <= index < count else None
