"""The icicle."""

import itertools

import pytest

from tests.views.tui.profile.samples import DEEP, HOSTILE, SIZES, of
from tests.views.tui.texts import texts
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.profile.calltree import TreeCursor, TreeView
from tuimon.views.tui.profile.hotlines import LinesView
from tuimon.views.tui.profile.icicle import IcicleView, blocks, under


def test_icicle_widths_are_shares(trainer):
    tree = trainer.tree(None)
    rows = blocks(tree, tree.root, 100, 10)
    assert [(b.node.function, b.x, b.width) for b in rows[3]] == [
        ("__next__", 0, 62), ("forward", 62, 20), ("backward", 82, 10), ("wrapper", 92, 4), ("log", 96, 2)
    ]  # fmt: skip
    assert len(rows) == 6  # as deep as the deepest stack, the root included


@pytest.mark.parametrize("width", [1, 7, 50, 133])
def test_blocks_stay_within_their_parents(trainer, width):
    tree = trainer.tree(None)
    rows = blocks(tree, tree.root, width, 10)
    for upper, lower in itertools.pairwise(rows):
        spans = {block.node.id: (block.x, block.x + block.width) for block in upper}
        ends = 0
        for block in lower:
            start, end = spans[block.node.parent.id]
            assert start <= block.x < block.x + block.width <= end
            assert block.x >= ends
            ends = block.x + block.width


def test_a_click_selects_the_block(trainer):
    view = IcicleView(TreeCursor())
    view.draw(trainer, None, 100, 20)
    assert not view.click(70, 3)
    assert view.click(70, 3)
    assert view.cursor.selected(trainer.tree(None)).function == "forward"
    assert not view.click(99, 3)
    assert under([], 0, 0) is None


def test_the_icicle_scrolls_to_what_is_selected():
    view = IcicleView(TreeCursor())
    view.draw(DEEP, None, 80, 20)
    view.move(100_000)
    view.draw(DEEP, None, 80, 20)
    view.move(100_000)
    rows = texts(view.draw(DEEP, None, 80, 20))
    assert len(rows) == 20
    selected = view.cursor.selected(DEEP.tree(None))
    assert selected.depth > 30
    assert any("▸" in row for row in rows)


# -- hot lines, call tree and icicle at every size


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
