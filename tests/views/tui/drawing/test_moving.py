"""A cursor over rows, and which of them are in view."""

import pytest

from tuimon.views.tui.drawing.moving import RowCursor, scrolled


@pytest.mark.parametrize(
    ("top", "at", "count", "room", "first"),
    [
        (0, 0, 0, 5, 0),  # no rows
        (0, 4, 20, 5, 0),  # in view already
        (0, 5, 20, 5, 1),  # the cursor went below the last row in view
        (9, 3, 20, 5, 3),  # above the first
        (18, 19, 20, 5, 15),  # no space below the last row
        (7, 0, 3, 5, 0),  # all rows fit
    ],
)
def test_the_cursor_is_in_view(top, at, count, room, first):
    assert scrolled(top, at, count, room) == first


def test_the_cursor_stays_on_its_row():
    cursor = RowCursor()
    cursor.move("abc", 1)
    assert cursor.index("abc") == 1
    assert cursor.index("xxabc") == 3
    assert cursor.index("ac") == 0  # its row has gone
    cursor.move("", 1)
    assert cursor.key == "b"


def test_a_click_finds_its_row():
    cursor = RowCursor()
    cursor.key = "h"
    assert cursor.scroll("abcdefgh", 3) == 7
    assert [cursor.row_at(y, 8) for y in (-1, 0, 2, 3)] == [None, 5, 7, None]
