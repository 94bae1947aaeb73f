"""Bars and charts are pure functions: literal values, literal strings."""

import pytest

from tests.views.tui.texts import texts
from tuimon.views.tui.drawing.charts import bar, ceiling, chart, layers, spread, stacked, tinted
from tuimon.views.tui.drawing.lines import text_of


@pytest.mark.parametrize(
    ("ratio", "width", "drawn"),
    [
        (0.0, 4, "    "),
        (1.0, 4, "████"),
        (0.5, 4, "██  "),
        (0.53, 4, "██▏ "),
        (0.001, 4, "▏   "),
        (2.0, 4, "████"),
        (-1.0, 4, "    "),
        (None, 4, "    "),
        (0.5, 0, ""),
    ],
)
def test_bar(ratio, width, drawn):
    assert bar(ratio, width) == drawn


def test_a_gauge_is_as_wide_as_asked():
    assert texts([layers([(0.5, "━", "data")], 6), layers([(0.01, "━", "data")], 6)]) == ["━━━───", "━─────"]
    assert texts([layers([(0.0, "━", "data")], 3), layers([(2.0, "━", "data")], 3)]) == ["───", "━━━"]
    assert texts([layers([(0.25, "━", "data"), (0.25, "╍", "data")], 4)]) == ["━╍──"]


def test_few_values_fill_the_chart_and_of_many_the_newest_are_shown():
    assert chart([1, 4], 4, 1, 0, 4) == ["⣀⣀⣿⣿"]
    assert chart([0, 1, 2, 3, 4], 2, 1, 0, 4) == ["⣠⣾"]


def test_a_whole_run_is_merged_into_the_width_and_a_gap_stays_one():
    assert chart([4, 4, 0, 0, None, None, 2, 0], 2, 1, 0, 4, whole=True) == ["⣇⢀"]
    (row,) = stacked([(1.0, 0.0), (0.0, 1.0), None, None], ROLES, 2, 1, 1.0, whole=True)
    assert [(span.text, span.role) for span in row] == [("▄", "forward on:data"), (" ", "")]  # not on the data's colour


def test_spread():
    assert spread([1, 2, 3], 5, max) == [1, 1, 2, 2, 3]
    assert spread([1, 2, 3], 2, max) == [2, 3]
    assert spread([1, 2, 3, None], 2, max, whole=True) == [2, 3]
    assert spread([], 2, max) == [None, None]


def test_a_measured_zero_shows_a_dot_and_a_gap_none():
    assert chart([0.0, None, 0.0, 0.0], 2, 1, 0, 1) == ["⡀⣀"]


def test_the_body_of_a_chart_is_darker_than_its_edge():
    rows = tinted(chart([4, 4, 1, 1], 2, 2, 0, 4), "gpu")
    assert [(span.text, span.role) for span in rows[0]] == [("⣿ ", "gpu-edge")]
    assert [(span.text, span.role) for span in rows[1]] == [("⣿", "gpu-body"), ("⣤", "gpu-edge")]


ROLES = ("data", "forward")


def test_the_smallest_step_still_shows():
    (row,) = stacked([(0.0001, 0.0)], ROLES, 1, 1, 100.0)
    assert text_of(row) == "▁"


def test_ceiling_is_calm_about_outliers():
    assert ceiling([10.0] * 20 + [4000.0]) == 12
    assert ceiling([]) == 1.0
    assert ceiling([None, 0.38]) == pytest.approx(0.4)
    assert ceiling([0.0, 0.0]) == 1.0
    assert ceiling([66.0, 96.0]) == 120
