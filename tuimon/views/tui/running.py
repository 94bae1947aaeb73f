"""Runs the app on the terminal at hand, which may be lost at any moment."""

from __future__ import annotations

import signal
import sys
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuimon.launch.signals import LeaveSignals
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.leaving import Leave, what_goes_on
from tuimon.views.tui.terminal_driver import reset_job_control

if TYPE_CHECKING:
    from tuimon.monitor.monitor import Monitor


def run_app(
    monitor: Monitor,
    refresh_s: float = 0.5,
    signals: LeaveSignals | None = None,
    begin: Callable[[], None] = lambda: None,
) -> Leave:
    """Run the app until it is left; ``begin`` is called once the first frame is drawn."""
    app = TuimonApp(monitor, refresh_s, signals=signals, begin=begin)
    try:
        leave = app.run()
    except (OSError, termios.error):
        if not is_terminal_lost(app):
            raise
        leave = None
    finally:
        reset_job_control()
    if is_terminal_lost(app):
        return Leave(128 + signal.SIGHUP, terminal_lost=True)
    # none: the app failed; textual has shown why, and the run is not harmed
    return leave or Leave(app.return_code or 1, what_goes_on(monitor))


def is_terminal_lost(app: TuimonApp) -> bool:
    """True if the terminal was lost: reported, or seen by now, whatever its loss made of the app."""
    return app.terminal_lost or not sys.__stdin__ or not sys.__stdin__.isatty()
