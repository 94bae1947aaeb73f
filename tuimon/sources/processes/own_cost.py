"""The cost of tuimon itself: its own CPU and that of its py-spy children, its resident memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from tuimon.proc import procfs
from tuimon.records import Cost

#: A py-spy child's CPU is known when it has ended, every few seconds: ratios are over this long.
_SPAN_S = 10.0
_EVERY_S = 2.0


class CostMeter:
    """Measures this process; reports it every two seconds."""

    def __init__(self, interval_s: float, own_cpu_s: Callable[[], float] = time.process_time) -> None:
        self._own_cpu_s = own_cpu_s
        self._past: deque[tuple[float, float, float]] = deque()  # t, own CPU, children's CPU
        self._every_s = max(_EVERY_S, interval_s)
        self._due_s = 0.0

    def read(self, now_s: float, sampler_cpu_s: float) -> Iterable[Cost]:
        """A Cost record when it is due."""
        self._past.append((now_s, self._own_cpu_s(), sampler_cpu_s))
        while len(self._past) > 2 and self._past[1][0] <= now_s - _SPAN_S:
            self._past.popleft()
        from_s, own_s, children_s = self._past[0]
        span_s = now_s - from_s
        if span_s <= 0 or now_s < self._due_s:
            return
        self._due_s = now_s + self._every_s - 0.1
        _, own_now_s, children_now_s = self._past[-1]
        sampler_ratio = (children_now_s - children_s) / span_s
        yield Cost(
            t=round(now_s, 3),
            pid=0,
            window_s=round(span_s, 3),
            cpu_ratio=round((own_now_s - own_s) / span_s + sampler_ratio, 4),
            sampler_cpu_ratio=round(sampler_ratio, 4),
            rss_bytes=_resident_bytes(),
        )


def _resident_bytes() -> int:
    pages = (procfs.read_bytes("/proc/self/statm") or b"0 0").split()
    return int(pages[1]) * procfs.PAGE_BYTES
