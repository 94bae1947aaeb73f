"""The works of one GPU in the order of their streams, their launches, and its busy time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tuimon.trace.events import Events, Kind, Stretch
from tuimon.trace.reader import Trace

Interval = tuple[int, int]


class Intervals:
    """Moments at which something runs, overlaps merged."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in sorted(intervals):
            if end <= begin:
                continue
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def within_ns(self, begin_ns: int, end_ns: int) -> int:
        """How much of a stretch they cover."""
        first = bisect_right(self._ends, begin_ns)
        last = bisect_left(self._begins, end_ns)
        pairs = zip(self._begins[first:last], self._ends[first:last], strict=True)
        return sum(min(end, end_ns) - max(begin, begin_ns) for begin, end in pairs)


class Launch(NamedTuple):
    """The runtime call that put a work on the GPU."""

    call: int  # event
    begin_ns: int
    end_ns: int


class Gpu:
    """One GPU's works. ``works``: those launched in the steps. ``main``: the stream with the most kernels.

    Not that with the most time: collectives are few and wait long.
    """

    def __init__(
        self, trace: Trace, device: int, works: list[int], launches: dict[int, Launch], whole: Stretch
    ) -> None:
        events = trace.events
        self.device = device
        self.name = trace.device_names.get(device, "")
        self.launches = launches
        self.works = [i for i in works if whole.begin_ns <= self.called_ns(events, i) < whole.end_ns]
        self.streams: dict[int, list[int]] = defaultdict(list)  # track: its works
        kernels: dict[int, int] = defaultdict(int)
        for i in works:
            self.streams[events.track[i]].append(i)
            kernels[events.track[i]] += events.kind[i] == Kind.KERNEL
        self.main = max(kernels, key=lambda track: kernels[track])
        self.busy = Intervals((events.begin_ns[i], events.end_ns[i]) for i in works)
        self._called = [self.called_ns(events, i) for i in self._main_works]
        ends: list[int] = []
        for i in self._main_works:
            ends.append(max(events.end_ns[i], ends[-1] if ends else 0))
        self._ends = ends

    @property
    def _main_works(self) -> list[int]:
        return self.streams[self.main]

    def called_ns(self, events: Events, work: int) -> int:
        """When a work was launched; where the call is not in the trace, when it began."""
        launch = self.launches.get(events.correlation[work])
        return launch.begin_ns if launch is not None else events.begin_ns[work]

    def reached_ns(self, moment_ns: int) -> int:
        """When the main stream had done all that was launched before a moment of the CPU: not before that moment."""
        before = bisect_left(self._called, moment_ns)
        return max(moment_ns, self._ends[before - 1]) if before else moment_ns


def gpus_of(trace: Trace, whole: Stretch) -> list[Gpu]:
    """The GPUs that worked, by their number."""
    events = trace.events
    works: dict[int, list[int]] = defaultdict(list)
    launches: dict[int, Launch] = {}
    for i in range(len(events)):
        kind = events.kind[i]
        if kind >= Kind.KERNEL:
            works[trace.devices[events.track[i]] or 0].append(i)
        elif kind == Kind.RUNTIME and events.correlation[i]:
            launches[events.correlation[i]] = Launch(i, events.begin_ns[i], events.end_ns[i])
    return [Gpu(trace, device, works[device], launches, whole) for device in sorted(works)]
