"""Charts and lines by cells, not characters: wide ones, cutting, wrapping, ASCII terminals."""

import pytest
from rich.cells import cell_len

from tests.views.tui.running_app import texts
from tuimon.records import Place
from tuimon.views.scale import Axis, ceiling, mean, on_axis, spread
from tuimon.views.tui.drawing.canvas import ascii_only, glyphs_of
from tuimon.views.tui.drawing.charts import bar, chart, layers, stacked, tinted
from tuimon.views.tui.drawing.lines import (
    Span,
    clip,
    clipped,
    clipped_words,
    column,
    justified,
    line,
    line_width,
    notes_lines,
    place_column,
    text_of,
    wrapped,
)
from tuimon.views.tui.drawing.moving import Rows

LONG = ("/home/me/a_rather_long_name_of_a_script.py", 1234)


@pytest.mark.parametrize("text", ["abc", "漢字テキスト", "a漢b字c", ""])
@pytest.mark.parametrize("width", range(1, 14))
def test_a_column_has_exactly_its_width_in_cells(text, width):
    assert cell_len(column(text, width)) == width
    assert cell_len(column(text, width, ">")) == width
    assert cell_len(clipped(text, width)) <= width


def test_clip_keeps_roles_and_says_what_was_cut():
    spans = clip(line(("abcdef", "data"), ("ghi", "dim")), 4)
    assert [(span.text, span.role) for span in spans] == [("abc…", "data")]
    assert clip(line(("abc", "data"), ("def", "dim")), 4)[-1] == Span("…", "dim")
    assert text_of(clip(line("abc", "def"), 3)) == "ab…"


@pytest.mark.parametrize("width", range(1, 30))
def test_justified_never_overflows(width):
    spans = justified(line("left 漢字 side"), line("right"), width)
    assert line_width(spans) <= width
    assert width < 20 or text_of(spans).endswith("right")


def test_wrapping_cuts_words_that_are_too_long():
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("abcdefgh", 3) == ["abc", "def", "gh"]
    assert all(cell_len(row) <= 5 for row in wrapped("漢字漢字漢字 x", 5))
    assert wrapped("", 5) == []
    assert wrapped("waits (66 %) of it", 10) == ["waits", "(66 %) of", "it"]
    assert wrapped("at /home/somebody/src/train.py", 14) == ["at", "/home/", "somebody/src/", "train.py"]


@pytest.mark.parametrize(
    ("width", "shown"),
    [(40, "many small kernels, one at a time"), (20, "many small kernels…"), (19, "many small kernels…"), (3, "ma…")],
)
def test_words_are_cut_whole(width, shown):
    assert clipped_words("many small kernels, one at a time", width) == shown


def test_notes_are_whole_and_the_last_give_way():
    cure = "no samples – install it: python -m pip install py-spy"
    rows = [text_of(row) for row in notes_lines([cure, "another"], 30, 12)]
    assert " ".join(rows) == f"{cure} another"
    assert " ".join(text_of(row) for row in notes_lines([cure, "another"], 30, 6)) == cure
    cut = notes_lines([cure * 9], 30, 6)
    assert len(cut) == 4 and text_of(cut[-1]).endswith("…") and line_width(cut[-1]) <= 30


def test_ascii_keeps_the_width():
    drawn = "┤█▌ 63 % – 漢 ⣿⣀ ×2 …"
    assert ascii_only(drawn).isascii()
    assert cell_len(ascii_only(drawn)) == cell_len(drawn)
    assert ascii_only("⣿⣤⣀ ━─ █") == "#:. =- #"
    assert ascii_only("37 % ±2 %") == "37 %+-2 %"


@pytest.mark.parametrize(
    ("environ", "encoding", "glyphs"),
    [
        ({"TERM": "xterm-256color"}, "utf-8", "braille"),
        ({"TERM": "xterm", "LANG": "C"}, "UTF-8", "braille"),  # Python speaks UTF-8 there, PEP 538
        ({"TERM": "xterm", "LC_ALL": "C"}, "utf-8", "ascii"),
        ({"TERM": "xterm", "LC_ALL": "de_DE.utf8"}, "ascii", "braille"),
        ({"TERM": "xterm"}, "iso8859-1", "ascii"),
        ({"TERM": "linux"}, "utf-8", "ascii"),
        # the user has the last word
        ({"TERM": "linux", "TUIMON_GLYPHS": "blocks"}, "utf-8", "blocks"),
        ({"TERM": "xterm", "TUIMON_GLYPHS": "ascii"}, "utf-8", "ascii"),
        ({"TERM": "xterm", "TUIMON_GLYPHS": "what"}, "utf-8", "braille"),
    ],
)
def test_which_characters_a_terminal_gets(environ, encoding, glyphs):
    assert glyphs_of(environ, encoding) == glyphs


@pytest.mark.parametrize("width", range(9, 60, 3))
def test_a_place_fills_its_column_and_keeps_its_line(width):
    shown = text_of(place_column(Place(*LONG, ""), width))
    assert len(shown) == width and shown.endswith("  ")
    assert shown.rstrip().endswith(":1234")


# -- a cursor over rows, and which of them are in view


def test_the_cursor_stays_on_its_row():
    cursor = Rows(str)
    cursor.move(1)
    assert cursor.selected is None
    cursor.rows = "abc"
    cursor.move(1)
    for rows, selected in (("abc", "b"), ("xxabc", "b"), ("ac", "a"), ("ab", "b")):  # "ac": its row has gone
        cursor.rows = rows
        assert cursor.selected == selected


def test_a_click_finds_its_row():
    cursor = Rows(str)
    cursor.rows = "abcdefgh"
    cursor.select("h")
    assert cursor.in_view(3) == [("f", False), ("g", False), ("h", True)]
    assert [(cursor.click(y), cursor.key) for y in (-1, 2, 0, 3, 0)] == [
        (False, "h"), (True, "h"), (False, "f"), (False, "f"), (True, "f")
    ]  # fmt: skip


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


def test_few_values_fill_the_chart_and_many_are_merged_into_it_and_a_gap_stays_one():
    assert chart([1, 4], 4, 1, 0, 4) == ["⣀⣀⣿⣿"]
    assert chart([0.0, None, 0.0, 0.0], 2, 1, 0, 1) == ["⡀⣀"]  # a measured zero shows a dot
    assert chart([4, 4, 0, 0, None, None, 2, 0], 2, 1, 0, 4) == ["⣇⢀"]
    (row,) = stacked([(1.0, 0.0), (0.0, 1.0), None, None], ROLES, 2, 1, 1.0)
    assert [(span.text, span.role) for span in row] == [("▄", "forward on:data"), (" ", "")]  # not on the data's colour


def test_spread():
    assert spread([1, 2, 3], 5, max) == [1, 1, 2, 2, 3]
    assert spread([1, 2, 3, None], 2, max) == [2, 3]
    assert spread([], 2, max) == [None, None]


AXIS = Axis(10.0, 1.0, 4)


@pytest.mark.parametrize(
    ("rows", "slots"),
    [
        ([(10.2, 11.2, 1.0), (11.2, 12.2, 2.0)], (1.0, 2.0, 2.0, 2.0)),  # the next one is due
        ([(8.0, 9.0, 9.0), (10.0, 11.0, None), (11.0, 12.0, 2.0), (12.0, 14.0, 4.0)], (None, 2.0, 4.0, 4.0)),
        ([(10.1, 10.2, 1.0), (10.2, 10.3, 3.0), (14.0, 15.0, 9.0)], (2.0, None, None, None)),
        ([(12.0, 12.0, 1.0)], (None, None, 1.0, None)),
        ([], (None,) * 4),
    ],
)
def test_values_come_into_the_slots_of_the_time_axis(rows, slots):
    assert on_axis([row[:2] for row in rows], [row[2] for row in rows], AXIS, mean) == slots


def test_a_line_shows_where_the_scale_ends():
    rows = tinted(chart([4, 1], 2, 2, 0, 4), "gpu", has_top=True)
    assert [(span.text, span.role) for span in rows[0]] == [("⣿", "gpu-edge"), ("▔", "track")]
    assert "▔" not in rows[1][-1].text


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
