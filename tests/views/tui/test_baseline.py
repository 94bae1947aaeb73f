"""Key b: what is on the screen, and everything beside it from then on."""

import pytest
from msgspec.structs import replace

from tests.session.records import process
from tests.views import streams
from tests.views.playback import MAIN, Playback
from tests.views.tui.running_app import ALL, running, text, visible
from tuimon.views.tui.baseline import Compared, baseline_line, change_text
from tuimon.views.tui.drawing.lines import cells, text_of


def a_faster_loader(windows=40):
    """A minute that waits for data, then, one tick each, seconds that do not."""
    monitor = streams.input_bound(60)
    monitor.later = [[], *streams.seconds(61, windows, data_ms=1.5)]
    return monitor


async def test_b_compares_what_comes_with_what_is_on_the_screen():
    async with running(a_faster_loader()) as (app, pilot):
        assert "baseline" not in visible(app)
        await pilot.press("b")
        assert visible(app) == ALL | {"baseline"}
        assert "BASELINE" in text(app, "baseline")
        assert "too early to say what has changed since" in text(app, "baseline")
        assert text(app, "phases").splitlines()[0].endswith("63 %")
        for _ in range(40):
            app.tick()
        await pilot.pause()
        said = text(app, "baseline")
        assert "x faster (" in said and ": data 6" in said
        assert "step 66.3 ms → 26.0 ms" in said
        first = text(app, "phases").splitlines()[0]
        assert first.startswith("data") and first.endswith("-96 %")


async def test_until_all_that_is_shown_came_after_it_nothing_is_called_a_change():
    """The figures are of the last 30 s, most of them from before: "-30 %" of them is no news."""
    async with running(a_faster_loader()) as (app, pilot):
        await pilot.press("b")
        assert "%" not in text(app, "baseline") and "→" not in text(app, "baseline")
        assert "-" not in text(app, "phases") and "baseline" not in str(app.board.phases.border_title)
        for _ in range(40):
            app.tick()
        assert "→" in text(app, "baseline") and "beside the baseline" in str(app.board.phases.border_title)


async def test_of_a_run_that_has_ended_there_is_no_baseline():
    monitor = streams.ended()
    monitor.launched = None
    async with running(monitor) as (app, pilot):
        await pilot.press("b")
        await pilot.pause()
        assert "baseline" not in visible(app)
        assert any("The run has ended, so no baseline can be compared" in note.message for note in app._notifications)


async def test_capital_b_shows_all_by_itself_again():
    async with running(a_faster_loader()) as (app, pilot):
        before = text(app, "phases")
        await pilot.press("b", "B")
        assert "baseline" not in visible(app)
        assert text(app, "phases") == before


async def test_without_a_step_there_is_nothing_to_take():
    async with running(streams.before_first_step()) as (app, pilot):
        await pilot.press("b")
        await pilot.pause()
        assert "baseline" not in visible(app)
        assert any("nothing to compare with" in note.message for note in app._notifications)


@pytest.mark.parametrize(("seconds", "is_short"), [(6, True), (60, False)])
async def test_a_baseline_that_is_too_short_says_so_at_once(seconds, is_short):
    async with running(streams.input_bound(seconds)) as (app, pilot):
        await pilot.press("b")
        await pilot.pause()
        text = "windows with steps after the warm-up, too few to compare with: press b again when it has 8 or more"
        assert any(text in note.message for note in app._notifications) == is_short
        assert "baseline" in visible(app)


async def test_what_cannot_be_compared_says_why():
    monitor = a_faster_loader()
    monitor.later[1].append(process(MAIN, ppid=1, gpu_uuids=["GPU-0"], rank=0, world_size=4))
    async with running(monitor) as (app, pilot):
        await pilot.press("b")
        for _ in range(30):
            app.tick()
        assert "ranks 1 before, 4 after" in text(app, "baseline")


async def test_of_what_chance_may_be_it_says_what_shows_more_than_the_screen():
    monitor = streams.input_bound(60)
    uneven = (streams.seconds(t, 1, data_ms=1.5 if t % 2 else 90.0)[0] for t in range(61, 101))
    monitor.later = [[], *uneven]
    async with running(monitor) as (app, pilot):
        await pilot.press("b")
        for _ in range(40):
            app.tick()
        await pilot.pause()
        said = text(app, "baseline")
        assert "Cannot tell" in said and "tuimon diff" in said and "repeat" not in said


@pytest.mark.parametrize("width", [40, 79, 80, 120, 200])
def test_the_line_fits(width):
    state = Compared("1.84x faster (1.79-1.88): data 62 % -> 3 %; now compute-bound in backward", "benign", 41.5, 22.6)
    row = baseline_line(state, width)
    assert cells(row) <= width
    assert text_of(row).startswith(" " + " BASELINE ")
    assert ("step 41.5 ms → 22.6 ms" in text_of(row)) == (width >= 120)


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (40.0, 1.0, ("-98 %", "benign")),
        (40.0, 41.0, ("+2 %", "dim")),
        (40.0, 40.1, ("0 %", "dim")),
        (40.0, 60.0, ("+50 %", "critical")),
        (1.0, 30.0, ("30x", "critical")),
        (0.0, 3.0, ("new", "dim")),
        (0.0, 0.0, ("", "dim")),
        (None, 3.0, ("new", "dim")),
        (3.0, None, ("–", "dim")),
    ],
)
def test_a_change_in_words(before, now, says):
    assert change_text(before, now) == says


async def test_another_process_is_compared_with_all_that_is_shown_of_it():
    """As after the script was started again in the same command: all of its own steps count."""
    monitor = Playback([*streams.start()[:2], *(r for w in streams.seconds(1, 30, gpus=0) for r in w)])
    async with running(monitor) as (app, pilot):
        await pilot.press("b")
        monitor.session.add(process(MAIN, ppid=1, ended=True, t=31.0))
        again = MAIN + 1000
        monitor.session.add(process(again, ppid=1, t=31.0, start_unix_s=1.7e9 + 31))
        for window in streams.seconds(32, 20, gpus=0, data_ms=1.5):
            monitor.session.add(replace(window[0], pid=again, first_index=window[0].first_index - 480))
        app.tick()
        app._show()
        assert "x faster (" in text(app, "baseline")
