"""How long a process waited for a core, in the windows that steps are counted in."""

from __future__ import annotations

from collections import deque

from tuimon.records import ThreadCpu, Threads

#: CPU and waiting for it from which a thread counts as one that wants to run: our choice, between a helper thread's
#: few percent and a computing one's 100 %.
WANTS_TO_RUN = 0.30
#: Windows of threads that are kept. Steps come up to a second after their window, when that of the threads is over.
_WINDOWS = 6


class CoreWaits:
    """The latest windows of one process's threads.

    Windows of threads and of steps begin at different moments. Of threads that waited 0.2 of the window from 10 s to
    11 s and 0.6 of that from 11 s to 12 s, steps from 10.5 s to 11.5 s have waited 0.4.
    """

    def __init__(self) -> None:
        self._windows: deque[tuple[float, float, float]] = deque(maxlen=_WINDOWS)  # begin, end, share

    def add_window(self, record: Threads) -> None:
        """Fold a window of the process's threads."""
        ratio = _waited_ratio(record)
        if ratio is not None:
            self._windows.append((record.t - record.window_s, record.t, ratio))

    def ratio(self, begin_s: float, end_s: float) -> float | None:
        """Share (0..1) of a time; of the latest window where none lies in that time; None where none is known."""
        parts = [(min(end, end_s) - max(begin, begin_s), ratio) for begin, end, ratio in self._windows]
        within = [(seconds, ratio) for seconds, ratio in parts if seconds > 0]
        if not within:
            return self._windows[-1][2] if self._windows else None
        return sum(seconds * ratio for seconds, ratio in within) / sum(seconds for seconds, _ in within)


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
