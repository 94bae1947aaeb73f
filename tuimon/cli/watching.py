"""The loop of the commands that watch without a full screen."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable

from tuimon.monitor.monitor import Monitor
from tuimon.views.headless import HeadlessView

#: Seconds between two ticks of the monitor; the end of the target is noticed at once.
TICK_S = 0.25
#: The same once the target has ended, while the sources make their last read.
END_TICK_S = 0.02


class EndSleep:
    """Sleeps until a process ends, with a timeout (pidfd; plain sleep where there is none)."""

    def __init__(self, pid: int) -> None:
        self.has_ended = False
        self._poll = select.poll()
        self._handle = -1
        with contextlib.suppress(OSError, AttributeError):
            self._handle = os.pidfd_open(pid)
            self._poll.register(self._handle, select.POLLIN)

    def sleep(self, seconds: float) -> None:
        """Sleep this long at most; signal handlers run meanwhile."""
        if self._handle < 0:
            time.sleep(max(seconds, 0.0))
        elif self._poll.poll(max(seconds, 0.0) * 1000):
            self.has_ended = True
            self.close()  # from now on it would wake us at once, every time

    def close(self) -> None:
        """Close the handle."""
        if self._handle >= 0:
            self._poll.unregister(self._handle)
            os.close(self._handle)
            self._handle = -1


def watch_headless(
    monitor: Monitor, refresh_s: float, *, step: Callable[[], None], until: Callable[[], bool] = lambda: False
) -> None:
    """Watch until the target has ended or ``until`` is true: a line every ``refresh_s``, a summary at the end."""
    view = HeadlessView(sys.stderr)
    until_end = EndSleep(monitor.process.pid if monitor.process else 0)
    next_line_s = time.monotonic() + refresh_s
    monitor.start()
    try:
        while not monitor.ended and not until():
            now_s = time.monotonic()
            until_end.sleep(END_TICK_S if until_end.has_ended else min(TICK_S, max(next_line_s - now_s, 0.01)))
            step()
            monitor.tick()
            if time.monotonic() >= next_line_s:
                next_line_s = _next(next_line_s, refresh_s)
                view.show(monitor.session, monitor.findings)
    finally:
        until_end.close()
        monitor.stop()
    view.summary(monitor.session, monitor.findings, monitor.log.path if monitor.log else None)


def _next(due_s: float, period_s: float) -> float:
    return max(due_s + period_s, time.monotonic() + period_s / 2)
