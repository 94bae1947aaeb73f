"""How long a run's threads on one node waited for a core lately, beside what they used."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from msgspec import Struct

from tuimon.records import Threads
from tuimon.session.windows import WINDOW_S


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
        second = self._second(record.t)
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

    def _second(self, t: float) -> _Second:
        if not self._seconds or self._seconds[-1].number < int(t):
            self._seconds.append(_Second(int(t)))
        return self._seconds[-1]
