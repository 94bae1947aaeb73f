"""When the panes are drawn."""

from tests.views import streams
from tests.views.tui.running_app import text
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.board import Pacing
from tuimon.views.tui.drawing.pane import Pane
from tuimon.views.tui.terminal_app import Capabilities


def drawn(pacing, changes):
    return "".join("D" if pacing.is_due(change == "x") else "." for change in changes)


def test_once_a_window_at_most():
    assert drawn(Pacing(2), "xxxxx") == "D.D.D"
    assert drawn(Pacing(1), "xxx") == "DDD"
    assert drawn(Pacing(0), "xx") == "DD"


def test_what_came_too_early_is_drawn_at_the_next_tick():
    assert drawn(Pacing(2), "xx.....x") == "D.D....D"
    assert drawn(Pacing(4), "xx......") == "D...D..."


def test_what_came_during_a_pause_is_drawn_after_it():
    pacing = Pacing(2)
    assert pacing.is_due(True)
    assert not any(pacing.is_due(True, paused=True) for _ in range(5))
    assert pacing.is_due(False)


async def test_ticks_without_news_collect_only_the_output(monkeypatch, tmp_path):
    collected = []
    update = Pane.update_state
    monkeypatch.setattr(Pane, "update_state", lambda pane, *now: (collected.append(pane.id), update(pane, *now))[1])
    monitor = streams.input_bound(5)
    app = TuimonApp(monitor, refresh_s=3600, capabilities=Capabilities())
    async with app.run_test(size=(120, 40)) as pilot:
        app.tick()
        await pilot.pause()
        assert "threads" in collected
        collected.clear()
        for _ in range(5):
            app.tick()
        assert set(collected) == {"output"}
        monitor.later = [streams.seconds(6, 1, data_ms=400.0)[0]]
        app.tick()
        await pilot.pause()
        assert "peak" in text(app, "phases") or "150 ms" in text(app, "phases")
