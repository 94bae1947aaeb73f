"""Leaving the app, and the terminal that it gives back."""

import contextlib
import os
import pty
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.views import streams
from tests.views.tui.running_app import ALL, running, screen_lines, text, visible
from tests.waiting import until
from tuimon.launch.signals import LeaveSignals
from tuimon.records import Exit
from tuimon.views.tui import app as app_module
from tuimon.views.tui import terminal_app
from tuimon.views.tui.app import AppOutcome, TuimonApp
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.terminal_app import WAITING_LIMIT, Capabilities, ExitEvent, TerminalOutput

GOES_ON = "The training goes on as pid 4242. Come back with: tuimon attach 4242"
CRASHED = "The training ended with exit code 1\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.mark.parametrize(
    ("stream", "keys", "leave"),
    [
        ("input_bound", "q l", AppOutcome(0, GOES_ON)),
        ("input_bound", "ctrl+c l", AppOutcome(0, GOES_ON)),
        ("input_bound", "ctrl+c ctrl+c", AppOutcome(0, GOES_ON)),
        ("inferred", "q", AppOutcome(0)),  # attached
        ("inferred", "ctrl+c", AppOutcome(0)),
        ("ended", "q", AppOutcome(1, CRASHED)),
    ],
)
async def test_leave_it_as_it_is(stream, keys, leave):
    async with running(getattr(streams, stream)()) as (app, pilot):
        await pilot.press(*keys.split())
        await pilot.pause()
    assert app.return_value == leave
    assert not app.monitor.end_requested


async def test_end_it_shows_the_stages_and_leaves_with_its_exit_code():
    monitor = streams.input_bound(5)
    async with running(monitor) as (app, pilot):
        await pilot.press("q")
        before = "\n".join(text_of(row) for row in app.screen.text.lines)
        assert "tuimon attach 4242" in before and "end it" in before
        await pilot.press("e")
        assert monitor.end_requested
        shown = "\n".join(text_of(row) for row in app.screen.text.lines)
        assert "sent SIGINT" in shown
        monitor.session.add(Exit(t=9.0, pid=streams.MAIN, exit_code=130, signal="SIGINT"))
        app.tick()
        await pilot.pause()
    assert app.return_value == AppOutcome(130, "The training was killed by SIGINT")


async def test_a_crash_of_what_was_attached_to_is_printed_with_its_error_whole():
    error = "ValueError: " + "a long message " * 20
    async with running(streams.inferred()) as (app, pilot):
        end = Exit(t=9.0, pid=streams.MAIN, exit_code=None, last_line=error, file="/x/train.py", line=12, function="f")
        app.monitor.session.add(end)
        app.tick()
        await pilot.press("q")
        await pilot.pause()
    assert app.return_value == AppOutcome(0, f"The training ended by an error at f() train.py:12\n{error}")


@pytest.mark.parametrize("first", ["key", "tick"])
@pytest.mark.parametrize("key", ["end", "dismiss('leave')", "dismiss('cancel')"])
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
    monkeypatch.setattr(app_module, "is_terminal_lost", lambda app: False)
    leave = app_module.run_app(streams.input_bound(5))
    assert leave == AppOutcome(1, GOES_ON)


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


# -- the terminal


@pytest.fixture
def terminal():
    """Both ends of a terminal: ours, the program's."""
    ours, theirs = pty.openpty()
    ends = [ours, theirs]
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def null_in_place_of(handle):
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, handle)
    os.close(null)


def test_the_input_thread_ends_once_the_terminal_is_gone_and_never_begins_again(terminal):
    ours, theirs = terminal
    lost = []
    event = ExitEvent(theirs, lambda: lost.append(True))
    assert not event.is_set()
    os.write(ours, b"q")
    assert not event.is_set()
    null_in_place_of(ours)  # closes our end
    assert event.is_set()
    assert lost
    null_in_place_of(theirs)  # as after the hand-over
    assert event.is_set()


def test_two_threads_may_ask_at_once(terminal):
    """The input thread asks before each wait, the app when it ends input: an error there would leave the thread."""
    event = ExitEvent(terminal[1], lambda: None)
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(lambda: [event.is_set() for _ in range(10_000)]) for _ in range(4)]
    assert not any(any(answer.result()) for answer in answers)


def test_output_to_a_terminal_that_takes_nothing_is_left_out_until_it_does(terminal):
    ours, theirs = terminal
    stale = threading.Event()
    with open(theirs, "w", closefd=False) as file:
        output = TerminalOutput(file, on_lost=lambda: None, on_stale=stale.set)
    assert output.admit()
    output.write("x" * 1_000_000)
    writer = threading.Thread(target=output.flush, daemon=True)
    writer.start()
    admitted = 0
    while output.admit():
        admitted += 1
    assert admitted == WAITING_LIMIT - 1
    assert output.admit(always=True)  # what gives the terminal back is never left out
    assert not stale.is_set()
    for _ in range(admitted + 1):
        output.write("y")
    count = 0
    while count < 1_000_000:
        count += len(os.read(ours, 65536))
    until(lambda: not writer.is_alive())
    output.flush()
    assert stale.wait(30)
    assert output.admit()


def test_output_to_a_lost_terminal_is_reported_once_a_write_and_raises_nothing(terminal):
    ours, theirs = terminal
    lost = []
    with open(theirs, "w", closefd=False) as file:
        output = TerminalOutput(file, on_lost=lambda: lost.append(True), on_stale=lambda: None)
    null_in_place_of(ours)
    for _ in range(100):
        assert output.admit()
        output.write("x")
        output.flush()
    assert len(lost) == 1


def test_output_waits_where_another_program_has_made_the_terminal_non_blocking(terminal):
    ours, theirs = terminal
    os.set_blocking(theirs, False)
    with open(theirs, "w", closefd=False) as file:
        output = TerminalOutput(file, on_lost=lambda: pytest.fail("it is there"), on_stale=lambda: None)
    output.admit()
    output.write("x" * 500_000)
    writer = threading.Thread(target=output.flush, daemon=True)
    writer.start()
    count = 0
    while count < 500_000:
        count += len(os.read(ours, 65536))
    until(lambda: not writer.is_alive())


async def test_an_inferred_table_says_so():
    async with running(streams.inferred()) as (app, _):
        assert "inferred from stack samples" in app.board.query_one("#step").border_title
        assert "~" in text(app, "step") and "not started by tuimon run" in text(app, "step")
        assert "not captured" in text(app, "output")


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
        drawn = "\n".join(screen_lines(app))
        assert "INPUT-BOUND" in drawn and drawn.isascii()


async def test_without_colours_the_cursor_is_reversed():
    async with running(streams.input_bound(5), capabilities=Capabilities(colours="none")) as (app, pilot):
        await pilot.press("up")
        await pilot.pause()
        strip = app.board.threads.render_line(1)
        assert any(segment.style.reverse for segment in strip)
