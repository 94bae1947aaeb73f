"""The app under Pilot: every key, the quit dialog, resizing, hostile text, runs that end."""

import json
import os
import signal
from contextlib import asynccontextmanager

import pytest

from tests.views import streams
from tuimon.records import Exit
from tuimon.views.tui.app import Leave, TuimonApp
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.sheets.quit import QuitDialog
from tuimon.views.tui.sheets.sheet import Sheet
from tuimon.views.tui.terminal_app import Capabilities


@asynccontextmanager
async def running(monitor, size=(120, 40), capabilities=Capabilities()):  # noqa: B008  (immutable)
    app = TuimonApp(monitor, refresh_s=3600, capabilities=capabilities)
    async with app.run_test(size=size) as pilot:
        app.tick()
        await pilot.pause()
        yield app, pilot


def text(app, name):
    """What a pane shows."""
    return "\n".join(text_of(row).rstrip() for row in app.board.query_one(f"#{name}").lines)


def visible(app):
    """The panes on the screen."""
    return {pane.id for pane in app.board.panes if pane.display} - {"title"}


ALL = {"verdict", "phases", "gpu", "output", "threads"}


async def test_the_first_picture_is_there_without_a_tick():
    app = TuimonApp(streams.input_bound(5), refresh_s=3600, capabilities=Capabilities())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "47.1 ms   66 %" in text(app, "phases")
        assert "worker 0" in text(app, "threads")


async def test_one_tick_folds_and_shows():
    monitor = streams.input_bound(5)
    monitor.later = [streams.seconds(6, 1, data_ms=400.0)[0]]
    async with running(monitor) as (app, _):
        assert monitor.ticks == 1
        assert "peak" in text(app, "phases") or "150 ms" in text(app, "phases")


async def test_only_changed_lines_are_painted_again():
    async with running(streams.input_bound(5)) as (app, pilot):
        painted = []
        threads = app.board.threads
        threads.refresh = lambda *regions, **_: painted.extend(regions) or threads
        app.tick()
        await pilot.pause()
        assert painted == []
        threads.show_lines([*threads.lines[:3], (), *threads.lines[4:]])
        assert [region.y for region in painted] == [3]


@pytest.mark.parametrize(
    ("key", "name"), list(zip("12345", ("phases", "gpu", "output", "threads", "verdict"), strict=True))
)
async def test_digits_hide_and_show_panes(key, name):
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press(key)
        assert visible(app) == ALL - {name}
        await pilot.press(key)
        assert visible(app) == ALL


async def test_zoom_and_back():
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("z")
        assert visible(app) == {"verdict", "threads"}
        await pilot.press("escape")
        assert visible(app) == ALL
        await pilot.press("tab", "tab", "enter")  # threads -> verdict -> phases
        assert visible(app) == {"verdict", "phases"}
        await pilot.press("z")
        assert visible(app) == ALL


async def test_tab_goes_round():
    async with running(streams.input_bound(5)) as (app, pilot):
        seen = []
        for _ in range(5):
            seen.append(app.focused.id)
            await pilot.press("tab")
        assert seen == ["threads", "verdict", "phases", "gpu", "output"]
        await pilot.press("shift+tab")
        assert app.focused.id == "output"


async def test_filter_threads_by_typing():
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("slash", *"worker 1")
        assert "worker 1" in text(app, "threads") and "worker 0" not in text(app, "threads")
        await pilot.press("enter")
        assert app.focused is app.board.threads
        assert "worker 0" not in text(app, "threads")
        await pilot.press("escape")
        assert "worker 0" in text(app, "threads")
        await pilot.press("slash", *"q1zs?", "escape")  # keys typed into the filter do nothing else
        assert app.is_running and visible(app) == ALL
        assert "worker 0" in text(app, "threads")


async def test_a_filter_that_nothing_passes_says_so():
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("slash", *"[bold]", "enter")
        assert "no thread matches “[bold]”" in text(app, "threads")


async def test_sort_cycles():
    def first(app):
        return text(app, "threads").splitlines()[1].split()[0]

    async with running(streams.input_bound(5)) as (app, pilot):
        assert first(app) == "main"
        await pilot.press("s")
        assert first(app) == "worker" and "cpu▾" in text(app, "threads")
        await pilot.press("s", "s", "s")
        assert first(app) == "main" and "role▾" in text(app, "threads")


@pytest.mark.parametrize("key", ["space", "p"])
async def test_pause_freezes_the_picture_and_goes_on_folding(key):
    monitor = streams.input_bound(5)
    async with running(monitor) as (app, pilot):
        before = text(app, "phases")
        await pilot.press(key)
        assert " PAUSED " in text(app, "title")
        monitor.later = [streams.seconds(6, 1, data_ms=400.0)[0]]
        app.tick()
        await pilot.pause()
        assert text(app, "phases") == before
        assert monitor.session.now_s == 6.0
        await pilot.press("down", "s")  # the table can still be looked through
        await pilot.press(key)
        app.tick()
        await pilot.pause()
        assert text(app, "phases") != before and " PAUSED " not in text(app, "title")


async def test_help_opens_and_closes():
    async with running(streams.input_bound(5), size=(80, 24)) as (app, pilot):
        await pilot.press("question_mark")
        assert isinstance(app.screen, Sheet)
        top = app.screen.body.lines
        await pilot.press("pagedown")
        assert app.screen.body.lines != top
        await pilot.press("escape")
        assert not isinstance(app.screen, Sheet)


async def test_enter_on_a_thread_shows_it_whole():
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("down", "enter")
        shown = "\n".join(text_of(row) for row in app.screen.body.lines)
        assert "worker 0" in shown and "/home/me/project/transforms.py:31" in shown


async def test_export_keeps_report_and_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with running(streams.input_bound(20)) as (app, pilot):
        await pilot.press("e")
        await pilot.pause()
        kept = sorted(tmp_path.iterdir())
        assert [path.suffix for path in kept] == [".json", ".svg", ".txt"]
        report = json.loads(kept[0].read_text())
        assert report["schema"] == 1
        assert report["steps"]["count"] > 0
        assert "<svg" in kept[1].read_text()
        assert "INPUT-BOUND" in kept[2].read_text()
        assert len(app._notifications) == 1


@pytest.fixture
def not_killed():
    """Without the app's own handler a SIGTERM is ignored here: the test fails, not the test run."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGTERM, before)


async def test_sigterm_leaves_and_the_training_goes_on(not_killed):
    monitor = streams.input_bound(5)
    async with running(monitor) as (app, pilot):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(100):
            await pilot.pause()
            if app.return_value is not None:
                break
        assert app.return_value.exit_code == 143
        assert (app.return_value.message is None) == (monitor.launched is None)


async def test_export_says_when_it_cannot(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tuimon.views.tui.app.save", full)
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("e")
        await pilot.pause()
        (note,) = app._notifications
        assert "No space left" in note.message


@pytest.mark.parametrize("keys", [("v",), ("tab", "enter")])
async def test_all_findings(keys):
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press(*keys)
        shown = "\n".join(text_of(row) for row in app.screen.body.lines)
        assert "INPUT-BOUND" in shown and "SIDE-WORK" in shown


async def test_an_open_sheet_stays_live():
    monitor = streams.input_bound(5)
    async with running(monitor) as (app, pilot):
        await pilot.press("v")
        monitor.findings = []
        app.tick()
        assert "No rule has found anything" in text_of(app.screen.body.lines[0])


async def test_light_and_dark():
    async with running(streams.input_bound(5)) as (app, pilot):
        dark = app.board.threads.rich_style.bgcolor
        await pilot.press("d")
        await pilot.pause()
        assert app.board.threads.rich_style.bgcolor != dark
        await pilot.press("d")
        await pilot.pause()
        assert app.board.threads.rich_style.bgcolor == dark


async def test_the_cursor_stays_on_its_thread():
    monitor = streams.many_threads(50)
    async with running(monitor) as (app, pilot):
        await pilot.press("end")
        last = app.board.threads.rows()[-1]
        assert str(last.tid) in text(app, "threads")
        await pilot.press("s", "enter")
        assert str(last.tid) in app.screen.body.border_title


# -- leaving


async def test_q_asks_while_a_launched_run_goes_on_and_c_cancels():
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("q")
        assert isinstance(app.screen, QuitDialog)
        await pilot.press("c")
        assert not isinstance(app.screen, QuitDialog) and app.is_running


@pytest.mark.parametrize("keys", [("q", "l"), ("ctrl+c", "l"), ("ctrl+c", "ctrl+c")])
async def test_leave_it_running(keys):
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press(*keys)
        await pilot.pause()
    assert app.return_value == Leave(0, "The training goes on as pid 4242. Come back with: tuimon attach 4242")
    assert not app.monitor.end_requested


async def test_end_it_shows_the_stages_and_leaves_with_its_exit_code():
    monitor = streams.input_bound(5)
    async with running(monitor) as (app, pilot):
        await pilot.press("q", "e")
        assert monitor.end_requested
        shown = "\n".join(text_of(row) for row in app.screen.body.lines)
        assert "sent SIGINT" in shown
        monitor.session.add(Exit(t=9.0, pid=streams.MAIN, exit_code=130, signal="SIGINT"))
        app.tick()
        await pilot.pause()
    assert app.return_value == Leave(130, "The training was ended by SIGINT")


async def test_q_after_the_end_leaves_with_the_exit_code():
    async with running(streams.ended()) as (app, pilot):
        assert "ENDED" in text(app, "verdict") and "CUDA out of memory" in text(app, "verdict")
        await pilot.press("q")
        await pilot.pause()
    assert app.return_value.exit_code == 1
    assert "ended with exit code 1: RuntimeError: CUDA out of memory" in app.return_value.message


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_attached_q_just_leaves(key):
    async with running(streams.inferred()) as (app, pilot):
        await pilot.press(key)
        await pilot.pause()
    assert app.return_value == Leave(0)


async def test_a_run_that_ends_while_the_question_is_open_withdraws_it():
    monitor = streams.input_bound(5)
    async with running(monitor) as (app, pilot):
        await pilot.press("q")
        monitor.session.add(Exit(t=9.0, pid=streams.MAIN, exit_code=0))
        app.tick()
        await pilot.pause()
        assert not isinstance(app.screen, QuitDialog) and app.is_running


# -- what comes from outside


STREAMS = ("input_bound", "healthy", "no_gpu", "before_first_step", "ended", "inferred", "many_threads", "eight_gpus",
           "hostile")  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 40), (200, 60)])
async def test_every_stream_at_every_size_draws_lines_of_the_right_width(name, size):
    async with running(getattr(streams, name)(), size) as (app, _):
        for pane in app.board.panes:
            if pane.display:
                for y in range(pane.content_size.height):
                    strip = pane.render_line(y)
                    assert strip.cell_length == pane.content_size.width
                    assert strip.text.isprintable()


async def test_markup_is_shown_as_it_is():
    async with running(streams.hostile()) as (app, pilot):
        assert "[bold]100 %[/bold] of 漢字" in text(app, "verdict")
        assert "[bold]x[/bold] red" in text(app, "output")
        assert "[link=x]no[/] GPU" in text(app, "gpu")
        await pilot.press("slash", *"[bold]", "enter")
        assert "[bold]" in str(app.board.threads.border_title).replace("\\", "")


async def test_an_inferred_table_says_so():
    async with running(streams.inferred()) as (app, _):
        assert "inferred from stack samples" in app.board.query_one("#phases").border_title
        assert "~" in text(app, "phases") and "not started by tuimon run" in text(app, "phases")
        assert "not captured" in text(app, "output")


async def test_without_a_gpu_one_line_says_what_is_missing():
    async with running(streams.no_gpu()) as (app, _):
        assert text(app, "gpu") == "GPU no NVIDIA driver on this machine"
        assert app.board.box("gpu").height == 1


async def test_output_scrolls_back_and_counts_what_it_left_out():
    monitor = streams.input_bound(5)
    monitor.output.data = b"".join(b"line %d\n" % i for i in range(200))
    async with running(monitor) as (app, pilot):
        assert "line 199" in text(app, "output")
        app.board.output.focus()
        await pilot.press("home")
        assert "line 0" in text(app, "output") and "line 199" not in text(app, "output")
        await pilot.press("end")
        assert "line 199" in text(app, "output")
        monitor.output.data = b"x" * 79 + b"\n" + b"y" * 5_000_000
        app.tick()
        assert "not shown" in app.board.output.border_title


async def test_resizing_from_huge_to_tiny_and_back():
    async with running(streams.input_bound(30)) as (app, pilot):
        for size in [(250, 80), (80, 24), (40, 10), (39, 9), (20, 3), (1, 1), (100, 30), (120, 40)]:
            await pilot.resize_terminal(*size)
            await pilot.pause()
            tiny = size[0] < 40 or size[1] < 10
            assert app.board.query_one("#small").display is tiny
            assert (visible(app) == set()) is tiny
        assert visible(app) == ALL
        assert "INPUT-BOUND" in text(app, "verdict")


async def test_a_font_without_braille_gets_blocks():
    async with running(streams.gpu_bound(30), capabilities=Capabilities(glyphs="blocks")) as (app, _):
        gpu = app.board.gpu
        drawn = "".join(segment.text for y in range(gpu.content_size.height) for segment in gpu.render_line(y))
        assert "█" in drawn and not any("⠀" <= char <= "⣿" for char in drawn)


async def test_an_ascii_terminal_gets_ascii():
    async with running(streams.input_bound(30), capabilities=Capabilities(glyphs="ascii")) as (app, pilot):
        await pilot.pause()
        drawn = "\n".join(
            "".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()
        )
        assert "INPUT-BOUND" in drawn and drawn.isascii()


async def test_without_colours_the_cursor_is_reversed():
    async with running(streams.input_bound(5), capabilities=Capabilities(colours="none")) as (app, _):
        strip = app.board.threads.render_line(1)
        assert any(segment.style.reverse for segment in strip)
