"""How long a process waited for a core and what it used of them, in the windows that steps are counted in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tuimon.records import ThreadCpu, Threads

#: CPU and waiting for it from which a thread counts as one that wants to run: our choice, between a helper thread's
#: few percent and a computing one's 100 %.
WANTS_TO_RUN = 0.30
#: Windows of threads that are kept. Steps come up to a second after their window, when that of the threads is over.
_WINDOWS = 6


class _Window(NamedTuple):
    """Of one process's threads; None where it was not measured."""

    begin_s: float
    end_s: float
    waited: float | None
    cpu: float | None


class CoreWaits:
    """The latest windows of one process's threads.

    Windows of threads and of steps begin at different moments. Of threads that waited 0.2 of the window from 10 s to
    11 s and 0.6 of that from 11 s to 12 s, steps from 10.5 s to 11.5 s have waited 0.4.
    """

    def __init__(self) -> None:
        self._windows: deque[_Window] = deque(maxlen=_WINDOWS)

    def add_window(self, record: Threads) -> None:
        """Fold a window of the process's threads."""
        self._windows.append(_Window(record.t - record.window_s, record.t, _waited_ratio(record), record.cpu_ratio))

    def ratio(self, begin_s: float, end_s: float) -> float | None:
        """Share (0..1) waited; of the latest window where none lies in that time; None where none is known."""
        return self._mean(lambda window: window.waited, begin_s, end_s)

    def cpu_ratio(self, begin_s: float, end_s: float) -> float | None:
        """Cores that all threads of the process used, in the same way."""
        return self._mean(lambda window: window.cpu, begin_s, end_s)

    def _mean(self, of: Callable[[_Window], float | None], begin_s: float, end_s: float) -> float | None:
        known = [(window, value) for window in self._windows if (value := of(window)) is not None]
        parts = [(min(window.end_s, end_s) - max(window.begin_s, begin_s), value) for window, value in known]
        within = [(seconds, value) for seconds, value in parts if seconds > 0]
        if not within:
            return known[-1][1] if known else None
        return sum(seconds * value for seconds, value in within) / sum(seconds for seconds, _ in within)


def _waited_ratio(record: Threads) -> float | None:
    """Of the thread that waited longest: the main thread, or one that computes, as the training waits for each."""
    waits = [
        row.delay_ratio
        for row in record.threads
        if row.cpu_ratio is not None and row.delay_ratio is not None and (row.tid == record.pid or _wants_to_run(row))
    ]
    return max(waits, default=None)


def _wants_to_run(thread: ThreadCpu) -> bool:
    return (thread.cpu_ratio or 0.0) + (thread.delay_ratio or 0.0) >= WANTS_TO_RUN
