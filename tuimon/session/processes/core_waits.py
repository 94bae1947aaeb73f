"""How long processes waited for a core, and what they used, in the windows that steps are counted in."""

from __future__ import annotations

import math
from array import array

from msgspec import Struct

from tuimon.records import Threads

#: CPU and waiting for it from which a thread counts as one that wants to run: our choice, between a helper thread's
#: few percent and a computing one's 100 %.
WANTS_TO_RUN = 0.30
#: Windows of threads that are kept. Steps come up to a second after their window, when that of the threads is over.
_WINDOWS = 6


class OnCores(Struct, frozen=True, gc=False):
    """How a process waited for cores and used them; None where it was not measured."""

    waited: float | None = None  # share (0..1) of it that the process waited for a core
    cpu: float | None = None  # cores that all its threads used


class CoreWaits:
    """The latest windows of one process's threads.

    Windows of threads and of steps begin at different moments. If threads waited 0.2 of the window from 10 s to 11 s
    and 0.6 of that from 11 s to 12 s, steps from 10.5 s to 11.5 s have waited 0.4.
    """

    def __init__(self) -> None:
        self._rows = array("d")  # begin, end, share waited and cores used of each; not a number: not measured

    def add_window(self, record: Threads) -> None:
        """Fold a window of the process's threads."""
        waited, cpu = _waited_ratio(record), record.cpu_ratio
        waited, cpu = math.nan if waited is None else waited, math.nan if cpu is None else cpu
        self._rows.extend((record.t - record.window_s, record.t, waited, cpu))
        if len(self._rows) > 4 * _WINDOWS:
            del self._rows[: -4 * _WINDOWS]

    def over(self, begin_s: float, end_s: float) -> OnCores:
        """The share it waited and the cores it used in a time; as in the latest window where none lies in it."""
        waited_s = waited_of_s = cpu_s = cpu_of_s = 0.0
        values = iter(self._rows)
        for window_begin_s, window_end_s, waited, cpu in zip(values, values, values, values):  # noqa: B905 (whole rows)
            if window_end_s <= begin_s or window_begin_s >= end_s:
                continue
            seconds = min(window_end_s, end_s) - max(window_begin_s, begin_s)
            if seconds <= 0:
                continue
            if waited == waited:  # a number  # noqa: PLR0124
                waited_s, waited_of_s = waited_s + seconds * waited, waited_of_s + seconds
            if cpu == cpu:  # noqa: PLR0124
                cpu_s, cpu_of_s = cpu_s + seconds * cpu, cpu_of_s + seconds
        return OnCores(
            waited_s / waited_of_s if waited_of_s else self._latest(2),
            cpu_s / cpu_of_s if cpu_of_s else self._latest(3),
        )

    def _latest(self, column: int) -> float | None:
        """The latest value that was measured."""
        return next((value for value in self._rows[column::4][::-1] if not math.isnan(value)), None)


def _waited_ratio(record: Threads) -> float | None:
    """Wait of the thread that waited longest: the main thread, or one that computes, as the training waits for each."""
    longest = None
    for row in record.threads:
        cpu, delay = row.cpu_ratio, row.delay_ratio
        counts = cpu is not None and delay is not None and (row.tid == record.pid or cpu + delay >= WANTS_TO_RUN)
        if counts and delay is not None and (longest is None or delay > longest):
            longest = delay
    return longest
