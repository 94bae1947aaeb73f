"""How long processes waited for a core, and what they used: in the windows that steps are counted in, and lately."""

from __future__ import annotations

import math
from array import array
from collections import deque
from typing import NamedTuple

from msgspec import Struct

from tuimon.records import Threads
from tuimon.session.windows import WINDOW_S

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


class Waits(NamedTuple):
    """Means over some seconds, in cores."""

    cpu: float  # that the threads of the run used
    delay: float  # that they wanted, but waited for
    longest: float  # share (0..1) of the time that the thread which waited longest has waited


class _Second(Struct):
    """Core seconds of the windows that ended in one second."""

    number: int
    span_s: float = 1.0  # or as long as the longest of these windows
    cpu_s: float = 0.0
    delay_s: float = 0.0
    longest: float = 0.0


class RecentWaits:
    """Sums over each of the last 30 s, of all processes together.

    Two threads that waited 0.2 and 0.4 of one second and not at all in the next have waited for 0.3 cores; the longest
    wait is 0.2 of the time.
    """

    def __init__(self) -> None:
        self._seconds: deque[_Second] = deque(maxlen=round(WINDOW_S))

    def add_threads(self, record: Threads) -> None:
        """Fold a window of one process's threads."""
        if not self._seconds or self._seconds[-1].number < int(record.t):
            self._seconds.append(_Second(int(record.t)))
        second = self._seconds[-1]
        window_s, longest = record.window_s, second.longest
        second.span_s = max(second.span_s, window_s)
        for row in record.threads:
            cpu, delay, count = row.cpu_ratio, row.delay_ratio, row.count
            if cpu is None or delay is None:
                continue
            second.cpu_s += cpu * count * window_s
            second.delay_s += delay * count * window_s
            longest = delay if delay > longest else longest
        second.longest = longest

    def since(self, since_s: float) -> Waits | None:
        """Waits in windows that began since a moment, without the second that is not over; None without any."""
        seconds = [each for each in list(self._seconds)[:-1] if each.number - each.span_s >= since_s]
        if not seconds:
            return None
        span_s = seconds[-1].number - seconds[0].number + seconds[0].span_s
        return Waits(
            sum(each.cpu_s for each in seconds) / span_s,
            sum(each.delay_s for each in seconds) / span_s,
            min(1.0, sum(each.longest * each.span_s for each in seconds) / span_s),
        )
