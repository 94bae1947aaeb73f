"""Where panes stand, at every size."""

import itertools

import pytest

from tuimon.views.tui.layout import MIN_HEIGHT, MIN_WIDTH, Box, WantedRows, lay_out

ALL = frozenset({"phases", "gpu", "output", "threads", "verdict"})
NO_GPU = WantedRows(12, 9, 0, frozenset({"gpu"}))
NO_OUTPUT = WantedRows(12, 9, 5, frozenset({"output"}))
NEITHER = WantedRows(12, 9, 0, frozenset({"gpu", "output"}))
ONE_GPU = WantedRows(12, 9, 5)
LOADERS = WantedRows(30, 300, 40, loaders=80)


def test_a_normal_screen():
    boxes = lay_out(120, 40, ALL, ONE_GPU)
    assert boxes["phases"] == Box(0, 4, 60, 20)
    assert boxes["gpu"] == Box(60, 4, 60, 7)
    assert boxes["output"] == Box(60, 11, 60, 13)
    assert boxes["threads"] == Box(0, 24, 120, 15)
    assert boxes["keys"] == Box(0, 39, 120, 1)


def test_without_a_gpu_one_line_says_so():
    boxes = lay_out(120, 40, ALL, NO_GPU)
    assert boxes["gpu"] == Box(0, 38, 120, 1)
    assert boxes["output"].height == boxes["phases"].height


def test_a_narrow_screen_has_one_column_by_importance():
    assert set(lay_out(80, 24, ALL, ONE_GPU)) == {"title", "verdict", "keys", "phases", "threads", "gpu"}
    assert set(lay_out(80, 24, ALL, NO_GPU)) == {"title", "verdict", "keys", "phases", "threads", "gpu", "output"}
    assert set(lay_out(80, 12, ALL, ONE_GPU)) == {"title", "verdict", "phases"}


def test_too_small():
    assert set(lay_out(39, 24, ALL, ONE_GPU)) == set(lay_out(80, 9, ALL, ONE_GPU)) == {"small"}


def _overlap(a, b):
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


@pytest.mark.parametrize("wanted", [NO_GPU, ONE_GPU, NO_OUTPUT, NEITHER, WantedRows(30, 300, 40), LOADERS])
@pytest.mark.parametrize("width", [MIN_WIDTH, 80, 99, 100, 120, 160, 240])
@pytest.mark.parametrize("height", [MIN_HEIGHT, 13, 14, 18, 24, 40, 60, 100])
def test_whatever_is_shown_panes_fit_and_do_not_overlap(width, height, wanted):
    for count in range(6):
        for hidden in itertools.combinations(sorted(ALL), count):
            panes = ALL - set(hidden) | ({"loaders"} if wanted.loaders else set())
            boxes = lay_out(width, height, panes, wanted)
            for box in boxes.values():
                assert box.width > 0 and box.height > 0
                assert box.x >= 0 and box.x + box.width <= width
                assert box.y >= 0 and box.y + box.height <= height
            assert not any(_overlap(a, b) for a, b in itertools.combinations(boxes.values(), 2))
            assert not set(hidden) & set(boxes)


def test_with_neither_and_few_rows_the_lines_give_way_first():
    assert "gpu" not in lay_out(120, 12, ALL, NEITHER)
    assert lay_out(120, 12, ALL, NEITHER)["threads"].height == lay_out(120, 12, ALL, NO_OUTPUT)["threads"].height
