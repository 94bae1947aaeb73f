"""A column of places."""

import pytest

from tuimon.views.tui.drawing.places import place_column, places_width

LONG = ("/home/me/a_rather_long_name_of_a_script.py", 1234)


@pytest.mark.parametrize("width", range(9, 60, 3))
def test_a_place_fills_its_column_and_keeps_its_line(width):
    shown = place_column(*LONG, width)
    assert len(shown) == width and shown.endswith("  ")
    assert shown.rstrip().endswith(":1234")


def test_a_column_is_as_wide_as_its_longest_place():
    assert places_width([("/a/train.py", 7), ("/b/x.py", 1)], 40) == len("train.py:7") + 2
    assert places_width([LONG], 20) == 20
    assert places_width([], 20) == 3
