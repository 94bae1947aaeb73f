"""Threads as rows of the table, and one thread whole."""

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from tests.session.samples import profiles
from tests.views import streams
from tests.views.playback import MAIN
from tests.views.tui.texts import texts
from tuimon.session.rows import ThreadRow
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.drawing.table import head_line, row_line
from tuimon.views.tui.panes.thread_rows import thread_columns, thread_lines

MAIN_ROW = ThreadRow(4242, 4242, "main", "python", 0.38, "waiting", 0.01, None)


@pytest.mark.parametrize("width", [36, 60, 76, 96, 116, 196])
def test_thread_rows_fill_their_width(width):
    rows = [*streams.hostile().session.over("recent").threads(), MAIN_ROW]
    columns = thread_columns(rows, width)
    for row in rows:
        assert cell_len(text_of(row_line(columns, row))) <= max(width, 40)


def test_a_long_files_name_leaves_its_line_to_be_read():
    (row, *_) = streams.input_bound(3).session.over("recent").threads()
    place = row.place._replace(file="/me/finetune_everything_on_one_machine.py", line=701)
    row = replace(row, place=place)
    (hot, *_) = streams.input_bound(3).session.over("recent").hot_lines(MAIN)
    hot = hot._replace(place=place)
    for width in (80, 120):
        assert ":701 " in text_of(row_line(thread_columns([row], width), row))
    assert ":701 " in texts(thread_lines(row, [hot], 100))[-1]


def test_who_holds_the_gil_is_a_column_once_it_was_looked_at():
    (row, *_) = profiles.session(2).over("recent").threads()
    assert "gil" not in text_of(head_line(thread_columns([row], 120), "role"))
    rows = [replace(row, gil_ratio=0.42), replace(row, tid=9, gil_ratio=None)]
    columns = thread_columns(rows, 120)
    assert "gil" in text_of(head_line(columns, "role"))
    assert " 42 % " in text_of(row_line(columns, rows[0]))
    assert cells(row_line(columns, rows[1])) == cells(row_line(columns, rows[0])) == 120
    assert "gil" not in [column.name for column in thread_columns(rows, 80)]
    assert "held 42 % of the time" in text_of(thread_lines(rows[0], [], 80)[7])
