"""Scrolling through rows: its keys, which rows are in view, and a cursor that stays on its row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.events import MouseScrollDown, MouseScrollUp

from tuimon.views.tui.drawing.canvas import Pane, State

_WHEEL_ROWS = 3  # rows that a notch of the wheel moves
_TO_END = 100_000  # rows: more than any list has
#: Key -> rows down.
MOVES = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "home": -_TO_END, "end": _TO_END}
_LETTERS = {"up": ",k", "down": ",j", "home": ",g", "end": ",G"}

Row = TypeVar("Row")


class MovingPane(Pane[State]):
    """A pane whose rows one moves through by keys and the mouse wheel."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key + _LETTERS.get(key, ""), f"move({rows_down})", show=False) for key, rows_down in MOVES.items()
    ]

    def action_move(self, rows_down: int) -> None:
        """Move or scroll by a number of rows."""
        raise NotImplementedError

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self.action_move(_WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self.action_move(-_WHEEL_ROWS)


def scrolled(top: int, at: int, count: int, room: int) -> int:
    """The first of ``count`` rows in view: near ``top``, with row ``at`` in view and no space below the last row."""
    top = max(0, min(top, count - room))
    return min(max(top, at - room + 1), at)


class Rows(Generic[Row]):
    """The rows of a list, and a cursor that stays on its row while rows come, go and change places.

    ``key_of`` says which row is the same as before.
    """

    def __init__(self, key_of: Callable[[Row], Hashable]) -> None:
        self.rows: Sequence[Row] = ()
        self.key: Hashable | None = None  # of the cursor's row
        self._key_of = key_of
        self._top = 0  # the first row in view

    @property
    def index(self) -> int:
        """Index of the cursor's row; 0 if its key is not among the rows."""
        return next((index for index, row in enumerate(self.rows) if self._key_of(row) == self.key), 0)

    @property
    def selected(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.index] if self.rows else None

    def select(self, row: Row) -> None:
        """Put the cursor on a row."""
        self.key = self._key_of(row)

    def in_view(self, room: int) -> list[tuple[Row, bool]]:
        """Scroll to the cursor; returns at most ``room`` rows in view, each with True if the cursor is on it."""
        at = self.index
        self._top = scrolled(self._top, at, len(self.rows), room)
        return [(row, number == at) for number, row in enumerate(self.rows[self._top : self._top + room], self._top)]

    def move(self, rows_down: int) -> None:
        """Move the cursor within the rows."""
        if self.rows:
            self.select(self.rows[min(max(self.index + rows_down, 0), len(self.rows) - 1)])

    def click(self, y: int) -> bool:
        """Put the cursor on the row ``y`` below the first in view; True if it stood there already."""
        shown = self.rows[self._top + y : self._top + y + 1] if y >= 0 else ()
        before = self.key
        for row in shown:
            self.select(row)
        return bool(shown) and before == self.key
