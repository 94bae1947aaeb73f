"""The profile pane, a thread's sheet and the process tree under Pilot."""

import asyncio

import pytest

from tests.session.records import process, threads
from tests.session.samples import profiles
from tests.session.samples.profiles import MAIN
from tests.views import streams
from tests.views.streams import Playback
from tests.views.tui.test_app import running, text
from tuimon.records import Place
from tuimon.session.session import Session
from tuimon.sources.stacks.closeup import Dump, ThreadStack
from tuimon.views.tui.sheets.thread import ThreadSheet
from tuimon.views.tui.terminal_app import Capabilities


def play(seconds=3, later=0):
    records = profiles.records(seconds + later)
    t_end = seconds + 1.0
    now = [record for record in records if record.t <= t_end]
    return Playback(now, later=[[record for record in records if record.t == t_end + n + 1] for n in range(later)])


def shown(app):
    return [row for row in text(app, "profile").splitlines() if row]


async def test_h_c_i_show_three_views_of_one_thread():
    async with running(play()) as (app, pilot):
        profile = app.board.profile
        assert not profile.display
        await pilot.press("h")
        assert profile.display and app.focused is profile
        assert not app.board.phases.display
        assert "for x, y in loader:" in text(app, "profile") and "waits for data" in text(app, "profile")
        await pilot.press("c")
        assert "▾ main" in text(app, "profile")
        await pilot.press("i")
        assert "▏main 100 %" in text(app, "profile")
        await pilot.press("escape")
        assert not profile.display and app.focused is app.board.threads and app.board.phases.display


async def test_it_is_of_the_thread_under_the_cursor():
    async with running(play()) as (app, pilot):
        await pilot.press("down", "h")
        assert "worker 0 · pid 4300" in shown(app)[0]
        assert "transforms.py:31" in text(app, "profile")
        await pilot.press("escape", "up", "h")
        assert "main · pid 4242" in shown(app)[0]


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


async def test_workers_have_no_phases_and_say_so():
    async with running(play()) as (app, pilot):
        await pilot.press("h", "f", "escape", "down", "h")
        assert "these threads have none" in text(app, "profile")
        await pilot.press("F")
        assert "transforms.py:31" in text(app, "profile")


async def test_a_thread_without_samples_says_why():
    async with running(play()) as (app, pilot):
        await pilot.press("end", "h")
        assert "autograd" in shown(app)[0] and "no stack samples" in text(app, "profile")
        await pilot.press("c", "down", "right", "left", "enter", "i", "down", "left", "enter", "escape")
        assert app.is_running


async def test_enter_on_a_line_shows_it_in_the_tree():
    async with running(play()) as (app, pilot):
        await pilot.press("h", "down", "down", "down", "enter")
        assert "▾ forward" in text(app, "profile") or "forward  model.py" in text(app, "profile")
        assert shown(app)[-1].startswith("forward  ")


async def test_tree_and_icicle_have_one_cursor():
    async with running(play()) as (app, pilot):
        await pilot.press("c", "down", "down", "down", "down", "down")
        assert shown(app)[-1].startswith("forward  20.0 %")
        await pilot.press("i")
        assert shown(app)[-1].startswith("forward  20.0 %")
        await pilot.press("right")
        assert shown(app)[-1].startswith("backward  10.0 %")
        await pilot.press("enter")
        assert "▏▸backward 10 %" in text(app, "profile") and "__next__" not in text(app, "profile")
        await pilot.press("backspace")
        assert "__next__" in text(app, "profile")
        await pilot.press("enter", "escape")
        assert app.board.profile.display
        await pilot.press("escape")
        assert not app.board.profile.display


async def test_new_samples_keep_cursor_and_folding():
    async with running(play(2, later=3)) as (app, pilot):
        await pilot.press("c", "down", "down", "left")
        before = shown(app)
        assert "▸ __next__" in text(app, "profile")
        samples = app.board.profile.state.profile.samples
        app.tick()
        await pilot.pause()
        assert app.board.profile.state.profile.samples > samples
        assert shown(app)[3:] == before[3:]


async def test_pause_freezes_the_samples_but_not_the_keys():
    async with running(play(2, later=3)) as (app, pilot):
        await pilot.press("h", "p")
        before = text(app, "profile")
        app.tick()
        await pilot.pause()
        assert text(app, "profile") == before
        samples = app.board.profile.state.profile.samples
        await pilot.press("f", "c")
        assert "__next__" in text(app, "profile")
        assert app.board.profile.state.profile.samples == samples
        await pilot.press("p")
        app.tick()
        assert app.board.profile.state.profile.samples > samples


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
        await pilot.press("i")
        await pilot.click("#profile", offset=(90, 7))
        assert shown(app)[-1].startswith("forward  20.0 %")
        await pilot.click("#profile", offset=(90, 7))
        assert "__next__" not in text(app, "profile")
        await pilot.press("h")
        await pilot.click("#profile", offset=(30, 9))
        assert app.board.profile.views.lines.selected().place.line == 55


async def test_before_anything_is_known():
    async with running(Playback()) as (app, pilot):
        await pilot.press("h", "t", "c", "f", "i", "t", "down", "up", "escape")
        assert app.is_running


@pytest.mark.parametrize(
    ("size", "look"),
    [
        ((40, 10), Capabilities()),
        ((200, 60), Capabilities("16")),
        ((80, 24), Capabilities(glyphs="ascii")),
        ((80, 24), Capabilities("none")),
    ],
)
async def test_lines_have_the_right_width_on_every_terminal(size, look):
    for monitor in (play(), streams.hostile()):
        async with running(monitor, size, look) as (app, pilot):
            for key in "hci":
                await pilot.press(key)
                profile = app.board.profile
                for y in range(profile.content_size.height):
                    strip = profile.render_line(y)
                    assert strip.cell_length == profile.content_size.width
                    assert strip.text.isprintable()
                    assert look.glyphs != "ascii" or strip.text.isascii()


# -- a thread's sheet


class Looks:
    """A closer look that a test answers."""

    def __init__(self, dump=None):
        self.asked = []
        self._dump = dump

    def code(self, file, line, started_unix_s=None):
        self.asked.append((file, line))
        return [(n, f"    line {n}") for n in range(line - 5, line + 6)]

    def dump(self, pid):
        self.asked.append(pid)
        return self._dump


def sheet(app):
    return "\n".join("".join(span.text for span in row) for row in app.screen.body.lines)


async def settled(app, pilot):
    await asyncio.wait_for(app.workers.wait_for_complete(), 20)
    await pilot.pause()


async def test_the_latest_stack_with_code_around_its_line():
    monitor = play()
    monitor.closeup = Looks()
    async with running(monitor, (120, 60)) as (app, pilot):
        await pilot.press("enter")
        await settled(app, pilot)
        app.tick()
        assert isinstance(app.screen, ThreadSheet)
        rows = sheet(app).splitlines()
        first = next(i for i, row in enumerate(rows) if row.startswith("latest stack, innermost first"))
        assert [row.split("(")[0].split()[-1] for row in rows[first + 1 : first + 5]] == [
            "select", "_try_get_data", "__next__", "main"
        ]  # fmt: skip
        assert rows[first + 4].startswith("▸ train.py:44")
        assert rows[first + 5 : first + 16] == [f"    {n} {'▏' if n == 44 else '│'} line {n}" for n in range(39, 50)]
        assert monitor.closeup.asked == [("/home/me/project/train.py", 44)]  # once


async def test_a_dump_on_demand():
    stack = (Place("/usr/lib/python3.11/selectors.py", 415, "select"), Place("/p/train.py", 44, "main"))
    other = ThreadStack(77, "pin [b]x", active=False, owns_gil=False, frames=stack[:1] * 90)
    main = ThreadStack(MAIN, "MainThread", active=True, owns_gil=True, frames=stack)
    monitor = play()
    monitor.closeup = Looks(Dump((other, main)))
    async with running(monitor, (120, 60)) as (app, pilot):
        await pilot.press("enter", "D")
        await settled(app, pilot)
        rows = sheet(app).splitlines()
        assert rows[0] == "dump of all Python threads, innermost first"
        assert rows[1] == f"▸ MainThread · tid {MAIN} · active   holds the GIL "
        assert rows[2].split() == ["selectors.py:415", "select()"]
        assert "pin [b]x · tid 77 · idle" in rows[4]
        await pilot.press("pagedown", "pagedown", "pagedown", "pagedown")
        assert "30 more frames" in sheet(app)


async def test_a_dump_that_fails_says_why():
    monitor = play()
    monitor.closeup = Looks(Dump((), "no dump: ptrace is denied", "start it with tuimon run"))
    async with running(monitor) as (app, pilot):
        await pilot.press("enter", "D")
        await settled(app, pilot)
        assert "no dump: ptrace is denied" in sheet(app) and "→ start it with tuimon run" in sheet(app)


async def test_the_same_stack_for_long_is_flagged(monkeypatch):
    monkeypatch.setattr(Session, "same_stack_s", lambda self, pid, tid: 42.0, raising=False)
    async with running(play()) as (app, pilot):
        await pilot.press("enter")
        assert " same stack for 42s " in sheet(app)


async def test_a_thread_that_is_gone_stays_open_as_ended():
    monitor = play()
    async with running(monitor) as (app, pilot):
        await pilot.press("end", "enter")
        assert "autograd" in sheet(app) and "no stack in the last samples" in sheet(app)
        monitor.session.add(threads(9.0, (MAIN, "python", 0.4, "waiting"), pid=MAIN))
        app.tick()
        assert "ended" in sheet(app)


# -- by process


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


async def test_filter_by_process_keeps_the_way_to_a_match():
    async with running(play()) as (app, pilot):
        await pilot.press("T")
        app.board.threads.filter_by("worker 1")
        assert [row.drawn.role for row in app.board.threads.shown()] == ["  worker 1"]


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
