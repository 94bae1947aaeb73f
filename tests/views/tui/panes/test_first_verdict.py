"""The first verdict waits until it has held."""

from tests.session.records import header, process, session_of, steps
from tests.views import streams
from tests.views.streams import INPUT_BOUND
from tests.views.tui.running_app import running, text
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.records import Exit
from tuimon.views.tui.panes.verdict_pane import FirstVerdict

STEP = {"forward": 40.0, "backward": 60.0}
SMALL = Finding("small_batch", "warning", "small", (Fix("larger batches"),))
HANG = Finding("hang", "critical", "nothing moves", (Fix("look"),))


def test_one_that_gives_way_is_never_shown():
    first, session, shown = FirstVerdict(), session_of(header(), process()), []
    for t in range(1, 16):
        session.add(steps(float(t), STEP))
        found = [SMALL] if t < 4 else [INPUT_BOUND]
        shown.append(first.measuring_s(session, found))
    assert shown[:8] == [1, 2, 3, 4, 5, 6, 7, 8] and shown[8:] == [None] * 7
    assert first.measuring_s(session, [SMALL]) is None  # from now on the hysteresis decides


def test_a_hang_and_the_end_of_a_run_wait_for_nothing():
    session = session_of(header(), process(), steps(1.0, STEP))
    assert FirstVerdict().measuring_s(session, [HANG]) is None
    assert FirstVerdict().measuring_s(session, [INPUT_BOUND]) is not None
    session.add(Exit(t=2.0, pid=1, exit_code=0))
    assert FirstVerdict().measuring_s(session, [INPUT_BOUND]) is None


async def test_meanwhile_the_verdict_s_rows_say_so():
    async with running(streams.input_bound(5)) as (app, _):
        assert "MEASURING  5 s" in text(app, "verdict") and "INPUT-BOUND" not in text(app, "verdict")
    recorded = streams.input_bound(5)
    recorded.is_live = False
    async with running(recorded) as (app, _):
        assert "INPUT-BOUND" in text(app, "verdict")
    async with running(streams.input_bound(60)) as (app, _):
        assert "INPUT-BOUND" in text(app, "verdict")
