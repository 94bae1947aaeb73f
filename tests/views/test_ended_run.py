"""After the end of a run its own figures are shown, not those of its last moments."""

from tests.session.records import header, process, session_of, steps
from tuimon.records import Exit, Gpu
from tuimon.session.rows import StepSummary
from tuimon.session.session import SessionView
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.gpu.gpu_pane import GpuPane


def run():
    """A minute of ten steps a second on a busy GPU, 40 s of five on an idle one, and 4 s in which it winds down."""
    session = session_of(header(), process(100, gpu_uuids=["GPU-0"]))
    for t in range(1, 105):
        count, ms, util = (10, 100.0, 0.8) if t <= 60 else (5, 200.0, 0.2) if t <= 100 else (0, 0.0, 0.0)
        phases = {"forward": ms / 2, "backward": ms / 2} if count else {}
        made = 10 * (t - 1) if t <= 60 else min(800, 600 + 5 * (t - 61))
        session.add(steps(float(t), phases, count=count, first_index=made))
        session.add(Gpu(t=t + 0.1, pid=0, index=0, uuid="GPU-0", name="H100", util_ratio=util, power_w=700 * util))
    return session


def ended():
    session = run()
    session.add(process(100, gpu_uuids=["GPU-0"], ended=True, t=104.5))
    session.add(Exit(t=105.0, pid=100, exit_code=0))
    return session


def gpu_pane(session):
    pane = GpuPane()
    state = pane.collect(session, ())
    return text_of(pane.heading(state)), [text_of(row) for row in pane.draw(state, 60, 12)]


def test_the_gpu_pane():
    heading, rows = gpu_pane(run())
    assert heading.endswith(" · last 30 s") and rows[0].startswith("util     20 %")
    heading, rows = gpu_pane(ended())
    assert heading.endswith(" · while training") and rows[0].startswith("util     56 %")
    assert any(row.startswith("power   391 W") for row in rows)


def test_a_rate_that_is_only_estimated_is_kept(monkeypatch):
    estimate = StepSummary(0, 2.0, None, None, None, None, 0, estimated=True)
    monkeypatch.setattr(SessionView, "estimated_steps", lambda self, pid: estimate)
    session = session_of(header(), process(100, markers=False), Exit(t=5.0, pid=100, exit_code=0))
    assert session.shown() is session.over("whole")
    assert session.shown().steps(100) is estimate
