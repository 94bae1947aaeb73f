"""The profile pane under Pilot."""

import pytest

from tests.recorded_logs import log_path
from tests.session.records import steps
from tests.session.stacks import profiles
from tests.session.stacks.profiles import APP, MAIN
from tests.views import streams
from tests.views.playback import Playback
from tests.views.tui.profile.samples import play
from tests.views.tui.running_app import running, text
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.reading import fold
from tuimon.records import Place, RangePlace
from tuimon.sources.log.reader import read_log
from tuimon.views.tui.profile.scope import blamed


def shown(app):
    return [row for row in text(app, "profile").splitlines() if row]


async def test_h_and_c_show_two_views_of_one_thread():
    async with running(play()) as (app, pilot):
        profile = app.board.profile
        assert not profile.display
        await pilot.press("h")
        assert profile.display and app.focused is profile
        assert not app.board.phases.display
        assert "for x, y in loader:" in text(app, "profile") and "waits for data" in text(app, "profile")
        await pilot.press("c")
        assert "▾ main" in text(app, "profile")
        await pilot.press("escape")
        assert not profile.display and app.focused is app.board.threads and app.board.phases.display


async def test_t_widens_the_scope():
    async with running(play()) as (app, pilot):
        await pilot.press("down", "h")
        seen = []
        for _ in range(4):
            seen.append(shown(app)[0].partition(" t ")[2].split("  ")[0])
            await pilot.press("t")
        assert seen == ["worker 0 · pid 4300", "all 2 worker threads", "process 4300", "the whole run"]
        assert "worker 0 · pid 4300" in shown(app)[0]


async def test_phases_by_f_and_by_arrows():
    async with running(play()) as (app, pilot):
        await pilot.press("h", "f", "f")
        assert "model.py:21" in text(app, "profile") and "train.py:44" not in text(app, "profile")
        await pilot.press("left")
        assert "train.py:44" in text(app, "profile") and "model.py:21" not in text(app, "profile")
        await pilot.press("F", "c")
        assert "▸ backward" in text(app, "profile")
        await pilot.press("f", "f", "f")
        assert "_engine_run_backward" in text(app, "profile") and "__next__" not in text(app, "profile")


async def test_a_thread_without_samples_says_why():
    async with running(play()) as (app, pilot):
        await pilot.press("end", "h")
        assert "autograd" in shown(app)[0] and "no stack samples" in text(app, "profile")
        await pilot.press("c", "down", "right", "left", "enter", "escape")
        assert app.is_running


async def test_enter_on_a_line_shows_it_in_the_tree():
    async with running(play()) as (app, pilot):
        await pilot.press("h", "down", "down", "down", "enter")
        assert "▾ forward" in text(app, "profile") or "forward  model.py" in text(app, "profile")
        assert shown(app)[-1].startswith("forward  ")


async def test_new_samples_keep_cursor_and_folding():
    async with running(play(2, later=3)) as (app, pilot):
        await pilot.press("c", "down", "down", "left")
        before = shown(app)
        assert "▸ __next__" in text(app, "profile")
        samples = app.board.profile.state.samples.total
        app.tick()
        await pilot.pause()
        assert app.board.profile.state.samples.total > samples
        assert shown(app)[3:] == before[3:]


async def test_nothing_is_computed_while_it_is_closed(monkeypatch):
    async with running(play(2, later=3)) as (app, pilot):
        app.tick()
        assert app.board.profile.state is None
        await pilot.press("h", "escape")
        kept = app.board.profile.state
        app.tick()
        await pilot.pause()
        assert app.board.profile.state is kept


async def test_sort_and_library_lines():
    async with running(play()) as (app, pilot):
        await pilot.press("h", "s")
        assert "total▾" in text(app, "profile")
        await pilot.press("s", "u")
        assert "selectors.py:415" in text(app, "profile")
        assert "every line by itself" in str(app.board.profile.border_title)


async def test_clicks():
    async with running(play()) as (app, pilot):
        await pilot.press("c")
        await pilot.click("#profile", offset=(30, 10))
        assert shown(app)[-1].startswith("forward  20.0 %")
        await pilot.click("#profile", offset=(30, 10))
        assert "▾ forward" in text(app, "profile")
        await pilot.press("h")
        await pilot.click("#profile", offset=(30, 9))
        assert app.board.profile.views.lines.selected().place.line == 55


async def test_before_anything_is_known():
    async with running(Playback()) as (app, pilot):
        await pilot.press("h", "t", "c", "f", "t", "down", "up", "escape")
        assert app.is_running


# -- user ranges in the app: ``f`` goes on from the phases to them


PLACE = RangePlace("step", f"{APP}/train.py", "main", 50, 60)


async def test_f_goes_on_from_the_phases_to_the_ranges():
    told = steps(4.0, {"data": 1.0}, count=1, pid=MAIN, range_places=[PLACE])
    async with running(Playback([*profiles.records(3), told])) as (app, pilot):
        await pilot.press("h")
        assert "ranges  step" in text(app, "profile")
        await pilot.press("F")  # back from "all" to the last
        assert app.board.profile.views.phase == "range:step"
        assert "train.py:55" in text(app, "profile") and "train.py:44" not in text(app, "profile")
        await pilot.press("f")
        assert app.board.profile.views.phase is None
        assert "train.py:44" in text(app, "profile")


# -- which thread and line the hot lines open on


def finding(file, line):
    return Finding(rule="input_bound", severity="critical", headline="waits", where=(Place(file, line, "f"),))


@pytest.mark.parametrize(("line", "kind"), [(20, "worker"), (33, "main")])
def test_it_is_the_worker_or_the_training_thread_whose_samples_pass_there(line, kind):
    session, _ = fold(read_log(str(log_path("h100_seed_dummy_loader_pyspy"))))
    found = blamed(session, [finding("/home/user/train/g02_seed_dummy_loader.py", line)])
    assert found.row.kind == kind and found.place.line == line


async def test_hot_lines_open_there_with_the_code_that_samples_brought():
    monitor = streams.input_bound(5)
    async with running(monitor, (120, 40)) as (app, pilot):
        await pilot.press("h")
        shown = text(app, "profile")
        assert "worker" in shown.splitlines()[0] and "transforms.py:31" in shown.splitlines()[-1]
        assert "31 ▏ out = cv(img, kernel)" in shown
