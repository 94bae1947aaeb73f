"""What a command prints on the terminal that the screen gives back."""

import pytest

from tests.views import streams
from tuimon.cli.watching import watch_full_screen
from tuimon.launch.signals import LeaveSignals
from tuimon.monitor.options import Options
from tuimon.views.tui import running
from tuimon.views.tui.leaving import Leave

VERDICT = """\
INPUT-BOUND: 62 % of every step waits for data: augment()
  transforms.py:31 keeps both workers at 100 %
  fix: num_workers=2 -> 6 on this 16-core machine; or make augment()
    transforms.py:31 cheaper
  gain: up to 2.1x faster
"""


@pytest.mark.parametrize("launched", [True, False])
def test_the_verdict_its_place_fix_and_gain_are_printed_once_the_screen_is_left(launched, monkeypatch, capsys):
    monitor = streams.input_bound(40)
    monitor.launched = monitor.launched if launched else None
    message = "The training goes on as pid 4242. Come back with: tuimon attach 4242" if launched else None
    monkeypatch.setattr(running, "run_app", lambda *_: Leave(0, message))
    monkeypatch.setenv("COLUMNS", "70")
    with LeaveSignals() as signals:
        watch_full_screen(monitor, Options(), signals)
    assert capsys.readouterr().out == VERDICT + (f"{message}\n" if message else "")
    monitor.findings.clear()
    watch_full_screen(monitor, Options(), LeaveSignals())
    assert capsys.readouterr().out.startswith("14.9 steps/s  67.0 ms ")
