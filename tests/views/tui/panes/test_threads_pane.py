"""The threads table: filter, ranks, helpers that share a row."""

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from tests.session.records import frames, header, hot_lines, process, session_of, stacks, threads
from tests.session.stacks import profiles
from tests.session.stacks.profiles import MAIN
from tests.views import streams
from tests.views.tui.profile.samples import play
from tests.views.tui.running_app import running, text
from tests.views.tui.texts import texts
from tuimon.records import Notice
from tuimon.session.rows import ThreadRow
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.drawing.table import head_line, row_line
from tuimon.views.tui.panes.thread_rows import thread_columns, thread_lines
from tuimon.views.tui.panes.threads_pane import ThreadsPane, matches, with_helpers_folded


def test_filter_looks_everywhere():
    (row, *_) = streams.input_bound(3).session.over("recent").threads()
    assert all(matches(row, text) for text in ("MAIN", "4242", "loader", "train.py:44", "waiting", ""))
    assert not matches(row, "worker")


async def test_threads_of_several_ranks_name_theirs():
    monitor = play()
    for rank in range(3):
        pid = 7000 + rank
        monitor.session.add(process(pid, rank=rank, world_size=3))
        monitor.session.add(threads(9.0, (pid, "python", 0.1 * rank, "running"), pid=pid))
    async with running(monitor, (120, 50)) as (app, _pilot):
        found = [row for row in text(app, "threads").splitlines() if row.startswith("rank")]
        assert [row.split()[:4] for row in found] == [
            ["rank", f"{rank}:", "main", f"{7000 + rank}"] for rank in range(3)
        ]
        app.board.threads.filter_by("rank 1: main")
        assert [row.pid for row in app.board.threads.shown()] == [7001]


@pytest.mark.parametrize(("covered", "is_shown"), [(True, False), (False, True)])
def test_no_notice_denies_samples_that_there_are(covered, is_shown):
    text = "no stack samples: py-spy was not found"
    session = session_of(header(), process(), Notice(t=1.0, pid=0, source="stacks", level="warning", message=text))
    if covered:
        session.add(frames(("train.py", 1, "f")))
        session.add(stacks(3.0, ([0], 20)))
    notes = ThreadsPane().collect(session, ()).notes
    assert any(text in note for note in notes) == is_shown


# -- helpers share rows; what trains and loads keeps its own


COMPILER = ["python3", "/site-packages/torch/_inductor/compile_worker/__main__.py", "--kind=fork"]


def row(pid, tid, role, cpu=0.1, **more):
    return ThreadRow(pid, tid, role, role, cpu, "waiting", 0.0, None, **more)


def test_compile_workers_are_one_row_whatever_their_number():
    rows = [row(1, 1, "main", 0.9), *(row(pid, pid, "python3", 0.1) for pid in range(10, 26))]
    processes = [process(1), *(process(pid, "other", command=COMPILER) for pid in range(10, 26))]
    main, folded = with_helpers_folded(rows, processes)
    assert main == rows[0]
    assert (folded.role, folded.count, round(folded.cpu_ratio, 3)) == ("compile workers", 16, 1.6)


# -- threads as rows of the table, and one thread whole


MAIN_ROW = ThreadRow(4242, 4242, "main", "python", 0.38, "waiting", 0.01, None)


@pytest.mark.parametrize("width", [36, 60, 76, 96, 116, 196])
def test_thread_rows_fill_their_width(width):
    rows = [*streams.input_bound(3).session.over("recent").threads(), MAIN_ROW]
    columns = thread_columns(rows, width)
    for row in rows:
        assert cell_len(text_of(row_line(columns, row))) <= max(width, 40)


def test_a_long_files_name_leaves_its_line_to_be_read():
    (row, *_) = streams.input_bound(3).session.over("recent").threads()
    place = row.place._replace(file="/me/finetune_everything_on_one_machine.py", line=701)
    row = replace(row, place=place)
    (hot, *_) = hot_lines(streams.input_bound(3).session.over("recent"), MAIN)
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
