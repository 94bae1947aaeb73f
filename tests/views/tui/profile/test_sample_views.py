"""Hot lines, call tree and icicle at every size."""

import pytest

from tests.views.tui.profile.samples import DEEP, HOSTILE, SIZES, of
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.profile.calltree import TreeCursor, TreeView
from tuimon.views.tui.profile.hotlines import LinesView
from tuimon.views.tui.profile.icicle import IcicleView


@pytest.mark.parametrize("profile", [HOSTILE, DEEP, of()], ids=["hostile", "deep", "empty"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_lines_fit_and_are_printable(profile, width, height):
    cursor = TreeCursor()
    tree, icicle = TreeView(cursor), IcicleView(cursor)
    drawn = [
        LinesView().draw(profile, None, width, height, on_gpu=True),
        tree.draw(profile, None, width, height),
        icicle.draw(profile, None, width, height),
    ]
    for lines in drawn:
        assert len(lines) == height
        assert all(text_of(row).isprintable() for row in lines)
    assert all(cells(row) <= width for row in drawn[2][:-1])
    for view in (tree, icicle):
        view.move(3)
        view.move(-1)
    tree.sideways(1), tree.sideways(-1), tree.enter(), icicle.sideways(1), icicle.enter(), icicle.zoom_out()
    assert isinstance(tree.draw(profile, None, width, height), list)
