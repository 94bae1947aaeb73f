"""The help sheet."""

import pytest

from tests.views.tui.texts import texts
from tuimon.views.tui.drawing.lines import cells
from tuimon.views.tui.sheets.help import help_lines


@pytest.mark.parametrize("width", [36, 60, 100])
def test_help_fits_and_explains_every_phase(width):
    lines = help_lines(width)
    assert all(cells(row) <= width for row in lines)
    drawn = "\n".join(texts(lines))
    for word in (
        "data",
        "forward",
        "backward",
        "optimizer",
        "other",
        "eval",
        "inferred",
        "delay",
        "own cost",
        "~",
        "–",
    ):
        assert word in drawn
