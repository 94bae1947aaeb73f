"""Watching a run: in the full screen, in lines on stderr, or without output once the terminal is lost."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import select
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tuimon.cli.quick_start import collect_often, message_if_slow, without_collections
from tuimon.cli.writing import silence, takes_output
from tuimon.launch.signals import LeaveSignals
from tuimon.monitor.monitor import Monitor
from tuimon.monitor.options import Options

if TYPE_CHECKING:
    from tuimon.views.headless import HeadlessView
    from tuimon.views.tui.app import AppOutcome

#: Seconds between two ticks of the monitor; the end of the target is noticed at once.
TICK_S = 0.5
#: Seconds between two ticks once the target has ended, while the sources make their last read.
END_TICK_S = 0.02


class EndSleep:
    """Sleeps until a process ends, with a timeout (pidfd; plain sleep if there is none)."""

    def __init__(self, pid: int) -> None:
        self.has_ended = False
        self._handles: list[int] = []
        with contextlib.suppress(OSError, AttributeError):
            self._handles.append(os.pidfd_open(pid))

    def sleep(self, seconds: float) -> None:
        """Sleep this long at most; signal handlers run meanwhile."""
        if select.select(self._handles, (), (), max(seconds, 0.0))[0]:
            self.has_ended = True
            self.close()  # an ended process would end every later sleep at once

    def close(self) -> None:
        while self._handles:
            os.close(self._handles.pop())


def watch(monitor: Monitor, options: Options, duration_s: float | None = None) -> int:
    """Watch until the user leaves or the run ends, headless for at most ``duration_s``; returns tuimon's exit code."""
    leave_s = math.inf if duration_s is None else time.monotonic() + duration_s
    with LeaveSignals() as signals:
        if not options.headless:
            return watch_full_screen(monitor, options, signals).exit_code

        def until() -> bool:
            return signals.ended_by is not None or time.monotonic() >= leave_s

        watch_headless(monitor, options.refresh_s, until=until)
    return 0


def watch_full_screen(monitor: Monitor, options: Options, signals: LeaveSignals) -> AppOutcome:
    """Watch in the full screen until the user leaves; returns the outcome with tuimon's exit code.

    If the terminal is lost, a session with a log is recorded on to the end of the run.
    """
    try:
        leave = _on_screen(monitor, options, signals)
        if leave.terminal_lost or not takes_output():
            silence(0, 1, 2)  # the streams of the terminal
        if leave.terminal_lost and not monitor.ended and (monitor.log is not None or monitor.ending is not None):
            # record on until the run ends, or end the run if the user wants that
            monitor.start()  # the terminal may have been lost before the first frame, and nothing started
            monitor.add_notice("terminal", "the terminal was lost; tuimon went on without it")
            monitor.limit_sampling(replace(options, headless=True).sampling_ratio)
            _watch(monitor, lambda: signals.ended_by is not None)
    finally:
        monitor.stop()
    # print the verdict on the restored terminal; without one, the progress of a run that goes on
    from tuimon.views.format import wrap
    from tuimon.views.headless import first_finding, progress
    from tuimon.views.report.report import parts_of

    columns = shutil.get_terminal_size().columns
    goes_on = [] if monitor.ended else [progress(parts_of(monitor.session.shown()))]
    for text in first_finding(monitor.findings) or goes_on:
        for part in wrap(text, columns):
            print(part)
    if leave.message:
        print(leave.message)
    if leave.terminal_lost and monitor.launched is not None and monitor.exit_code is not None:
        return leave._replace(exit_code=monitor.exit_code)
    return leave


def _on_screen(monitor: Monitor, options: Options, signals: LeaveSignals) -> AppOutcome:
    """Run the app; rules and sources are loaded and started once its first frame is drawn."""
    with contextlib.ExitStack() as loading:
        loading.enter_context(without_collections())
        with message_if_slow("tuimon: loading the screen; the disk or the machine is slow ..."):
            from tuimon.views.tui.app import run_app

        def begin() -> None:
            gc.collect()  # free 0.2 MB that the start has left behind
            monitor.start()
            loading.close()
            if monitor.is_live:
                collect_often()

        return run_app(monitor, options.refresh_s, signals, begin)


def watch_headless(
    monitor: Monitor,
    refresh_s: float,
    *,
    step: Callable[[], None] = lambda: None,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Watch until the target has ended or ``until`` is true: a line every ``refresh_s``, a summary at the end."""
    from tuimon.views.headless import HeadlessView

    view = HeadlessView(sys.stderr)
    try:
        with without_collections():
            monitor.start()
        _watch(monitor, until, step, view, refresh_s)
    finally:
        monitor.stop()
    view.summary(monitor.session, monitor.findings, monitor.log.path if monitor.log else None)


def _watch(
    monitor: Monitor,
    until: Callable[[], bool],
    step: Callable[[], None] = lambda: None,
    view: HeadlessView | None = None,
    refresh_s: float = TICK_S,
) -> None:
    until_end = EndSleep(monitor.process.pid if monitor.process else 0)
    next_line_s = time.monotonic() + refresh_s
    try:
        while not monitor.ended and not until():
            now_s = time.monotonic()
            until_end.sleep(END_TICK_S if until_end.has_ended else min(TICK_S, max(next_line_s - now_s, 0.01)))
            step()
            monitor.tick()
            if time.monotonic() >= next_line_s:
                next_line_s = max(next_line_s + refresh_s, time.monotonic() + refresh_s / 2)
                if view is not None:
                    view.show(monitor.session, monitor.findings, monitor.measuring_s(time.time()))
    finally:
        until_end.close()
