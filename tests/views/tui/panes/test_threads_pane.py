"""The threads table: filter, and threads by process."""

import pytest

from tests.session.records import frames, header, process, session_of, stacks, threads
from tests.session.samples.profiles import MAIN
from tests.views import streams
from tests.views.tui.profile.samples import play
from tests.views.tui.running_app import running, text
from tuimon.records import Notice
from tuimon.views.tui.panes.thread_list import matches
from tuimon.views.tui.panes.threads_pane import ThreadsPane
from tuimon.views.tui.sheets.thread_sheet import ThreadSheet


def test_filter_looks_everywhere():
    (row, *_) = streams.input_bound(3).session.over("recent").threads()
    assert all(matches(row, text) for text in ("MAIN", "4242", "loader", "train.py:44", "waiting", ""))
    assert not matches(row, "worker")


async def test_threads_by_process():
    async with running(play(), (120, 50)) as (app, pilot):
        await pilot.press("T")
        rows = [row for row in text(app, "threads").splitlines() if row]
        assert [row[:14].rstrip() for row in rows[1:6]] == [
            "▾ training ×2", "  main", "  autograd", "    worker 0", "    worker 1"
        ]  # fmt: skip
        assert rows[1].split()[3:6] == ["4242", "50", "%"]
        await pilot.press("enter")
        assert [row.drawn.role for row in app.board.threads.shown()] == ["▸ training"]
        await pilot.press("right", "down", "down", "left")
        assert app.board.threads.selected().role == "main"
        assert len(app.board.threads.shown()) == 5
        await pilot.press("left")
        assert len(app.board.threads.shown()) == 1
        await pilot.press("right", "T")
        assert "▾ training" not in text(app, "threads")


async def test_a_thousand_threads_by_process():
    monitor = play()
    for pid in range(5000, 5050):
        monitor.session.add(process(pid, "other", ppid=MAIN, command=["python", "job.py"]))
        monitor.session.add(
            threads(9.0, *((pid + 100_000 * n, f"t{n}", 0.1, "waiting") for n in range(1, 21)), pid=pid)
        )
    async with running(monitor) as (app, pilot):
        await pilot.press("T")
        threads_pane = app.board.threads
        assert len(threads_pane.rows()) == 1004
        assert len(threads_pane.shown()) == 3 + 2 + 50  # only the training process is unfolded at first
        await pilot.press("end", "right")
        assert len(threads_pane.shown()) == 3 + 2 + 50 + 20
        await pilot.press("end", "enter")
        assert isinstance(app.screen, ThreadSheet)


async def test_threads_of_several_ranks_name_theirs():
    monitor = play()
    for rank in range(3):
        pid = 7000 + rank
        monitor.session.add(process(pid, rank=rank, world_size=3))
        monitor.session.add(threads(9.0, (pid, "python", 0.1 * rank, "running"), pid=pid))
    async with running(monitor, (120, 50)) as (app, pilot):
        found = [row for row in text(app, "threads").splitlines() if row.startswith("rank")]
        assert [row.split()[:4] for row in found] == [
            ["rank", f"{rank}:", "main", f"{7000 + rank}"] for rank in range(3)
        ]
        app.board.threads.filter_by("rank 1: main")
        assert [row.drawn.pid for row in app.board.threads.shown()] == [7001]
        app.board.threads.filter_by("")
        await pilot.press("T")
        roles = [row.drawn for row in app.board.threads.shown()]
        assert {"  rank 0", "  rank 1", "  rank 2"} <= {row.role for row in roles}
        assert all(row.rank is None for row in roles)


@pytest.mark.parametrize(("covered", "is_shown"), [(True, False), (False, True)])
def test_no_notice_denies_samples_that_there_are(covered, is_shown):
    text = "no stack samples: py-spy was not found"
    session = session_of(header(), process(), Notice(t=1.0, pid=0, source="stacks", level="warning", message=text))
    if covered:
        session.add(frames(("train.py", 1, "f")))
        session.add(stacks(3.0, ([0], 20)))
    notes = ThreadsPane().collect(session, ()).notes
    assert any(text in note for note in notes) == is_shown
