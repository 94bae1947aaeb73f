"""What the GPU of a recorded training really did, phase by phase."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import itemgetter

from tests.gpu_simulator.recorded_timeline import Timeline, timeline
from tests.gpu_simulator.recording import COPY, Mark, phase

Interval = tuple[int, int]


@dataclass(slots=True)
class PhaseTruth:
    """A phase in one period, in ns of the GPU's time: from when the main stream reached its beginning to its end."""

    span_ns: int = 0
    starved_ns: int = 0  # the main stream had nothing to do: nothing was launched
    held_up_ns: int = 0  # launched, and waits for another stream
    device_idle_ns: int = 0  # no stream ran anything


class TimelineTruth:
    """Of one period of a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.phases: dict[str, PhaseTruth] = {}
        periods = range(-1, 3)
        works = list(timeline.repeated(timeline.works, periods))
        moved = [period * timeline.period_ns for period in periods]
        self._starved = _union((g.begin_ns + m, g.launched_ns + m) for m in moved for g in timeline.gaps)
        self._held = _union((g.launched_ns + m, g.end_ns + m) for m in moved for g in timeline.gaps if g.is_held_up)
        self._busy = _union((work.start_ns, work.end_ns) for work in works)
        self._kernels = _union((work.start_ns, work.end_ns) for work in works if work.kind != COPY)
        first = timeline.marks[0]
        again = first._replace(time_ns=first.time_ns + timeline.period_ns)
        for before, after in pairwise([*timeline.marks, again]):
            self._add(before, after)

    @property
    def total_ns(self) -> int:
        """The GPU's time of all steps of the period."""
        return sum(phase.span_ns for phase in self.phases.values())

    def share(self, figure: str, name: str | None = None) -> float:
        """A figure of one phase (or of all) as a share of the steps: "span", "starved", "held_up", "device_idle"."""
        phases = [self.phases[name]] if name else self.phases.values()
        return sum(getattr(phase, f"{figure}_ns") for phase in phases) / self.total_ns

    @property
    def kernel_ratio(self) -> float:
        """Share of time in which at least one kernel ran: NVML's utilisation, by its definition."""
        return _within(self._kernels, self._period) / self.timeline.period_ns

    @property
    def _period(self) -> Interval:
        first_ns = self.timeline.main[0].start_ns
        return first_ns, first_ns + self.timeline.period_ns

    def _add(self, before: Mark, after: Mark) -> None:
        reached = self.timeline.reached_ns(before.time_ns), self.timeline.reached_ns(after.time_ns)
        span_ns = reached[1] - reached[0]
        figures = self.phases.setdefault(phase(before.kind, after.kind), PhaseTruth())
        figures.span_ns += span_ns
        figures.starved_ns += _within(self._starved, reached)
        figures.held_up_ns += _within(self._held, reached)
        figures.device_idle_ns += span_ns - _within(self._busy, reached)


@cache
def truth(name: str) -> TimelineTruth:
    """Of a recording by its name."""
    return TimelineTruth(timeline(name))


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    out: list[Interval] = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if out and begin <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((begin, end))
    return out


def _within(union: list[Interval], bounds: Interval) -> int:
    first = bisect_right(union, bounds[0], key=itemgetter(1))
    last = bisect_left(union, bounds[1], key=itemgetter(0))
    return sum(max(0, min(end, bounds[1]) - max(begin, bounds[0])) for begin, end in union[first:last])
