"""The Ranks pane: its rows at several widths, and its keys."""

import pytest
from msgspec.structs import asdict, replace

from tests.session.records import steps
from tests.views import streams
from tests.views.tui.running_app import running, text, texts, visible
from tuimon.session.ranks import RankRow, TrainingRow
from tuimon.session.steps import OnCores, stretch_of
from tuimon.views.scale import Axis
from tuimon.views.tui.drawing.lines import head_line, line_width, row_line, text_of
from tuimon.views.tui.panes.ranks_pane import rank_columns, ranks_lines, strip_line, strips, training_columns

PHASES = {"data": 0.1, "forward": 0.3, "backward": 0.6}
ROW = RankRow(
    5, 105, "here", "training", 0, 900, 0,
    step_ms=100.0, phases=PHASES, waits={"data": 0.0, "forward": 0.0, "backward": 0.4},
    excess={"forward": 0.125}, memory_bytes=21 * 1024**3,
)  # fmt: skip
CALM = {105: (0.0, 0.2, 0.5)}


def columns(rows, width=120, focus=None):
    return rank_columns(rows, width, focus, CALM)


def names(rows, width=120):
    return [column.name.strip() for column in columns(rows, width)]


def row_text(row=ROW, *others, width=120):
    return text_of(row_line(columns([row, *others], width), row))


@pytest.mark.parametrize("width", [56, 76, 96, 116, 196])
def test_every_line_fits_its_width(width):
    rows = [ROW, replace(ROW, rank=1023, state="lost", gpu_ratio=0.5, excess={}, step_ms=None, phases={})]
    cols = columns(rows, width, ROW.pid)
    lines = [head_line(cols, "late"), *(row_line(cols, row) for row in rows)]
    lines += ranks_lines(rows, width, ROW.pid)
    assert {line_width(line) for line in lines} == {width}


def test_own_work_is_solid_and_waiting_is_hatched():
    bar = row_text().split("~+12.5 ms")[1]
    assert bar.count("░") == pytest.approx(0.4 * (bar.count("░") + bar.count("█")), abs=2)
    assert "~40 %" in row_text() and "21 GiB" in row_text()


def test_what_was_not_measured_is_absent():
    row = replace(ROW, excess={}, waits={}, step_ms=None, phases={}, memory_bytes=None)
    shown = row_text(row, ROW)
    assert shown.count("–") == 4 and "0" not in shown


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"behind": 40}, "40 behind"),
        ({"restarts": 1}, "restarted"),
        ({"state": "stopped"}, "stopped"),
        ({"state": "lost"}, "lost"),
        ({"state": "starting"}, "starting"),
    ],
)
def test_only_what_is_out_of_order_is_said_of_its_state(facts, said):
    assert said in row_text(replace(ROW, **facts))
    assert "state" not in names([ROW])


def test_ranks_on_several_nodes_are_shown_with_theirs():
    rows = [ROW, replace(ROW, rank=6, pid=106, host="node-with-a-long-name")]
    cols = columns(rows)
    head, *lines = map(text_of, (head_line(cols, "late"), *(row_line(cols, row) for row in rows)))
    at = head.index("node")
    assert [line[at : at + 12].rstrip() for line in lines] == ["here", "node-with-a…"]
    assert "node" not in names([ROW])


async def test_r_shows_who_holds_the_others_up_first():
    async with running(streams.ranks(), size=(80, 24)) as (app, pilot):
        await pilot.press("r")
        lines = text(app, "ranks").splitlines()
        assert visible(app) == {"verdict", "ranks"}
        assert lines[2].split()[:3] == ["5", "~+30.0", "ms"] and "text.py:118" in lines[2]
        assert [line.split()[0] for line in lines[3:10]] == ["▸0", "1", "2", "3", "4", "6", "7"]
        assert lines[2].count("█") > lines[3].count("█") and "░" in lines[3]


async def test_many_ranks_are_scrolled():
    async with running(streams.ranks(64, windows=12, since=0), size=(80, 24)) as (app, pilot):
        await pilot.press("r", "end")
        lines = text(app, "ranks").splitlines()
        assert lines[-1].split()[0] == "63" and "!" not in lines[1]


async def test_enter_shows_that_rank_in_all_panes():
    monitor = streams.ranks()
    async with running(monitor, size=(120, 40)) as (app, pilot):
        await pilot.press("r", "enter")
        assert monitor.session.trainer() == streams.MAIN + 5
        assert "ranks" not in visible(app)
        assert "rank 5 of 8" in str(app.board.step.border_title)
        await pilot.press("r", "s", "home", "enter")  # by number
        assert monitor.session.trainer() == streams.MAIN


async def test_s_sorts_and_escape_or_r_closes():
    async with running(streams.ranks(), size=(80, 24)) as (app, pilot):
        for key in ("escape", "r"):
            await pilot.press("r", "s" if key == "escape" else "tab")
            await pilot.press(key)
            assert "ranks" not in visible(app)
        await pilot.press("r")
        assert [line.split()[0] for line in text(app, "ranks").splitlines()[2:5]] == ["▸0", "1", "2"]


async def test_a_lost_rank_is_said_so_and_the_end_of_all_is_no_alarm():
    monitor = streams.ranks()
    ended = [streams.process(streams.MAIN + n, rank=n, world_size=8, ppid=50, ended=True, t=60.0) for n in range(8)]
    monitor.session.add(ended[3])
    async with running(monitor, size=(120, 40)) as (app, pilot):
        await pilot.press("r")
        assert "7, 1 lost" in str(app.board.ranks.border_title)
        assert text(app, "ranks").splitlines()[2].split()[0] == "3"
        for record in ended:
            monitor.session.add(record)
        app.board.show(monitor.session, [])
        assert "lost" not in str(app.board.ranks.border_title) + text(app, "ranks")


async def test_processes_that_are_no_ranks_are_listed_as_trainings():
    monitor = streams.trainings()
    async with running(monitor, size=(80, 24)) as (app, pilot):
        assert "training 1 of 4" in text(app, "title") and "ranks" not in text(app, "title")
        assert "training 1 of 4" in str(app.board.step.border_title)
        assert "r ranks" in text(app, "keys")
        await pilot.press("r")
        lines = text(app, "ranks").splitlines()
        assert lines[0].startswith("4 trainings side by side") and "Trainings" in str(app.board.ranks.border_title)
        assert [line.split()[0] for line in lines[2:6]] == ["▸1", "2", "3", "4"]
        await pilot.press("end", "enter")
        assert monitor.session.trainer() == streams.MAIN + 3
        assert "training 4 of 4" in text(app, "title")


async def test_another_training_of_the_run_stands_below_the_ranks():
    monitor = streams.two_groups()
    async with running(monitor, size=(120, 30)) as (app, pilot):
        assert "2 ranks, training 1 of 2" in text(app, "title")
        assert "rank 0 of 2, training 1 of 2" in str(app.board.step.border_title)
        await pilot.press("r")
        shown = text(app, "ranks")
        assert "1 other training of this run" in shown and "other.py" in shown
        await pilot.press("end", "enter")
        assert "2 ranks, training 2 of 2" in text(app, "title")
        assert monitor.session.trainer() == streams.MAIN + 10


@pytest.mark.parametrize("width", [56, 80, 120, 200])
def test_every_line_of_a_training_fits_its_width(width):
    lost = replace(ROW, state="lost", gpu_ratio=0.5, step_ms=None, memory_bytes=None)
    of = {"command": ("python", "train.py")}
    rows = [TrainingRow(**asdict(row), number=n, ranks=n, in_focus=n == 1, **of) for n, row in ((1, ROW), (2, lost))]
    columns = training_columns(rows, width)
    assert {line_width(line) for line in (head_line(columns), *(row_line(columns, row) for row in rows))} == {width}


# -- lateness over time: cells from windows of ranks


def window(t, own_ms, backward_ms, busy=0.0, window_s=1.0):
    record = steps(t, {"forward": own_ms, "backward": backward_ms}, window_s=window_s)
    return stretch_of(record, OnCores(busy=busy))


def rank(number, *windows, **more):
    return RankRow(
        number, 100 + number, "here", "training", 0, 10, 0, history=lambda last: windows[-(last or 0) :], **more
    )


def test_a_rank_is_late_by_its_own_share_beyond_the_median():
    even = [rank(n, *(window(t, 20, 80) for t in range(1, 5))) for n in range(3)]
    late = rank(3, window(1, 20, 80), window(2, 20, 80), window(3, 70, 30), window(4, 70, 30))
    found = strips([*even, late], [late, even[0]], Axis(0.0, 1.0, 4))
    assert found[103] == pytest.approx([0.0, 0.0, 0.5, 0.5])
    assert found[100] == pytest.approx([0.0] * 4)
    assert texts([strip_line(found[103], 4)]) == ["▁▁▇▇"]
    assert texts([strip_line(found[103], 8)]) == ["▁▁▁▁▇▇▇▇"]


def test_a_window_whose_steps_were_not_timed_is_a_gap():
    untimed = window(2, 20, 80)._replace(total_ns=0.0, backward_ns=0.0)
    rows = [rank(n, window(1, 20, 80), untimed if n else window(2, 20, 80), window(3, 20, 80)) for n in range(3)]
    assert strips(rows, rows[1:2], Axis(0.0, 1.0, 3))[101] == (0.0, None, 0.0)


@pytest.mark.parametrize(("ended", "late"), [(False, [None, None, None, 0.5]), (True, [0.0, 0.0, 0.5, 0.5])])
def test_only_after_the_end_the_strip_goes_back_to_the_first_step(ended, late):
    rows = [
        rank(n, *(window(t, *((70, 30) if n == 2 and t > 10 else (20, 80))) for t in range(1, 21))) for n in (0, 1, 2)
    ]
    assert strips(rows, rows[2:], Axis(0.0, 5.0, 4), ended=ended)[102] == pytest.approx(late)
