"""Leaving the app: the quit dialog, signals, runs that end."""

import os
import signal

import pytest

from tests.views import streams
from tests.views.tui.running_app import running, text
from tests.views.tui.texts import texts
from tuimon.launch.signals import LeaveSignals
from tuimon.records import Exit
from tuimon.views.tui import running as running_module
from tuimon.views.tui import terminal_app
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.leaving import Leave
from tuimon.views.tui.sheets.quit_dialog import QuitDialog, quit_lines


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
    assert app.return_value == Leave(130, "The training was killed by SIGINT")


async def test_q_after_the_end_leaves_with_the_exit_code():
    async with running(streams.ended()) as (app, pilot):
        assert "ENDED, exit code 1" in text(app, "title") and "CUDA out of memory" in text(app, "verdict")
        await pilot.press("q")
        await pilot.pause()
    assert app.return_value.exit_code == 1
    how, error = app.return_value.message.splitlines()
    assert how == "The training ended with exit code 1" and error.startswith("RuntimeError: CUDA out of memory")


async def test_a_crash_of_what_was_attached_to_is_printed_with_its_error_whole():
    error = "ValueError: " + "a long message " * 20
    async with running(streams.inferred()) as (app, pilot):
        end = Exit(t=9.0, pid=streams.MAIN, exit_code=None, last_line=error, file="/x/train.py", line=12, function="f")
        app.monitor.session.add(end)
        app.tick()
        await pilot.press("q")
        await pilot.pause()
    assert app.return_value == Leave(0, f"The training ended by an error at f() train.py:12\n{error}")


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


@pytest.mark.parametrize("first", ["key", "tick"])
@pytest.mark.parametrize("key", ["end", "choose('leave')", "choose('cancel')"])
async def test_a_key_in_the_tick_in_which_the_run_ends_closes_the_dialog_once(key, first):
    monitor = streams.input_bound(5)
    async with running(monitor) as (app, pilot):
        await pilot.press("q")
        opened = app.screen
        monitor.session.add(Exit(t=9.0, pid=streams.MAIN, exit_code=0))
        if first == "tick":
            app.tick()
        await app.run_action(key, opened)
        if first == "key":
            app.tick()
        await pilot.pause()
        assert opened not in app.screen_stack
        assert app.is_running == (first == "tick" or "cancel" in key)


async def test_a_sheet_that_is_closed_twice_leaves_the_board():
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("question_mark")
        sheet = app.screen
        sheet.dismiss()
        sheet.dismiss()
        await pilot.press("escape", "escape")
        assert app.is_running and len(app.screen_stack) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2])
async def test_a_signal_leaves_and_the_training_goes_on(number):
    with LeaveSignals() as signals:
        async with running(streams.input_bound(5), signals=signals) as (app, pilot):
            os.kill(os.getpid(), number)
            await left(app, pilot)
    assert app.return_value.exit_code == 128 + number
    assert app.return_value.message.startswith("The training goes on")
    assert not app.terminal_lost


def test_a_screen_that_fails_says_that_the_training_goes_on(monkeypatch):
    monkeypatch.setattr(TuimonApp, "run", lambda app: None)  # as Textual's does once it has shown an error
    monkeypatch.setattr(running_module, "is_terminal_lost", lambda app: False)
    leave = running_module.run_app(streams.input_bound(5))
    assert leave == Leave(1, "The training goes on as pid 4242. Come back with: tuimon attach 4242")


async def test_sighup_is_a_lost_terminal():
    with LeaveSignals() as signals:
        async with running(streams.input_bound(5), signals=signals) as (app, pilot):
            os.kill(os.getpid(), signal.SIGHUP)
            await left(app, pilot)
            os.kill(os.getpid(), signal.SIGHUP)  # the kernel's, after the shell's
        os.kill(os.getpid(), signal.SIGHUP)
    assert app.terminal_lost


async def left(app, pilot):
    for _ in range(100):
        await pilot.pause()
        if app.terminal_lost or app.return_value is not None:
            return
    raise AssertionError("it did not leave")


async def test_an_upgrade_under_the_screen_ends_it_with_a_plain_message(tmp_path, monkeypatch, capfd):
    """A sheet, imported when its key is pressed, is another version's by then."""
    async with running(streams.ended()) as (app, _):
        (tmp_path / "terminal_app.py").touch()
        monkeypatch.setattr(terminal_app, "__file__", str(tmp_path / "terminal_app.py"))
        app._handle_exception(ImportError("cannot import name 'HelpSheet'"))
    assert app.return_code == 1
    shown = " ".join(capfd.readouterr().err.split())
    assert shown == terminal_app.REPLACED


# -- the quit dialog


def test_quit_dialog_before_and_while_ending():
    before = "\n".join(texts(quit_lines(4242, None, 56)))
    assert "tuimon attach 4242" in before and "end it" in before
    assert "sent SIGINT" in "\n".join(texts(quit_lines(4242, "sent SIGINT", 56)))
