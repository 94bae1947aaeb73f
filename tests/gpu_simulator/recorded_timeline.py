"""A recorded training, its steps repeated without end: what the CPU launched when, and what the GPU really did."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

from tests.gpu_simulator.recording import COPY, MAIN, Mark, Recording, Wait, Work, load, phase
from tuimon.agent.ring import layout

#: A work that starts later than this after it was launched and the one before it ended waits for another stream.
#: Launches take 2-3 us to start on CUDA, 9.5 on MI300X (95 %: 10), queued works follow each other after 1-3.
HELD_UP_NS = 20_000
_BEGINS_STEP = (layout.FETCH_END, layout.BACKWARD_BEGIN)


class Gap(NamedTuple):
    """The main stream runs nothing: first nothing is launched, from ``launched_ns`` on the next work waits."""

    begin_ns: int
    launched_ns: int
    end_ns: int

    @property
    def is_held_up(self) -> bool:
        """Whether what was launched waits for another stream."""
        return self.end_ns - self.launched_ns > HELD_UP_NS


class Timeline:
    """The whole steps after the warm-up, one period after the other; period 0 is as recorded.

    A period is as long as the recorded steps were on the CPU; where the launches' lead has grown meanwhile, the CPU
    waits for so much longer at the end, as for room in a full queue: the GPU cannot run two periods at a time.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        begins = [mark.time_ns for mark in _step_begins(recording.marks)]
        self.begin_ns, end_ns = begins[recording.skip_first_steps], begins[-1]
        self.steps = begins.index(end_ns) - recording.skip_first_steps
        self.marks = [mark for mark in recording.marks if self.begin_ns <= mark.time_ns < end_ns]
        self.works = [work for work in recording.works if self.begin_ns <= work.called_ns < end_ns]
        self.waits = [wait for wait in recording.waits if self.begin_ns <= wait.begin_ns < end_ns]
        self.main = [work for work in self.works if work.stream == MAIN]
        others = sorted((work for work in self.works if work.stream != MAIN), key=attrgetter("called_ns"))
        self.others_called = [work.called_ns for work in others]
        self.others_ended = list(accumulate((work.end_ns for work in others), max))  # all that were called by then
        self.period_ns = max(
            end_ns - self.begin_ns, *(_length_ns(self.works, s) for s in {w.stream for w in self.works})
        )
        self.called = [work.called_ns for work in self.main]
        self.stream_waits = [wait.begin_ns for wait in self.waits if wait.kind == "stream_wait"]
        self.gaps = list(self._gaps())

    def reached_ns(self, time_ns: int) -> int:
        """When the GPU comes to an event that is put on the main stream at this time."""
        before, after = self._around(time_ns)
        held_ns = min(self._held_until_ns(before.called_ns, time_ns), after.start_ns)
        return max(time_ns, before.end_ns, held_ns)

    def repeated(self, works: Iterable[Work], periods: range) -> Iterator[Work]:
        """Works of the base period in other periods."""
        works = list(works)
        return (_moved(work, period * self.period_ns) for period in periods for work in works)

    def _around(self, time_ns: int) -> tuple[Work, Work]:
        """The last work of the main stream that was launched by then, and the next."""
        period = (time_ns - self.begin_ns) // self.period_ns
        at = bisect_right(self.called, time_ns - period * self.period_ns) - 1
        return self._main(period, at), self._main(period, at + 1)

    def _main(self, period: int, at: int) -> Work:
        more, index = divmod(at, len(self.main))
        return _moved(self.main[index], (period + more) * self.period_ns)

    def _held_until_ns(self, since_ns: int, time_ns: int) -> int:
        """The main stream waits for what other streams were given before the latest wait that lies in between; or 0."""
        period = (time_ns - self.begin_ns) // self.period_ns
        moved_ns = period * self.period_ns
        at = bisect_right(self.stream_waits, time_ns - moved_ns) - 1
        waited_ns = self.stream_waits[at] + moved_ns if at >= 0 else -1
        if waited_ns <= since_ns:
            return 0
        ends = [self._others_done_ns(waited_ns, moved_ns) for moved_ns in (moved_ns - self.period_ns, moved_ns)]
        return max(ends)

    def _others_done_ns(self, called_ns: int, moved_ns: int) -> int:
        """When other streams have done what they were given by then in the period that is so much later; or 0."""
        count = bisect_right(self.others_called, called_ns - moved_ns)
        return self.others_ended[count - 1] + moved_ns if count else 0

    def _gaps(self) -> Iterator[Gap]:
        """Of the main stream, from the first work of the period to the first of the next."""
        for before, after in pairwise([*self.main, _moved(self.main[0], self.period_ns)]):
            if after.start_ns > before.end_ns:
                launched_ns = after.launched_ns
                held_ns = self._held_until_ns(before.called_ns, after.called_ns)
                if held_ns > launched_ns:
                    launched_ns = before.end_ns  # nothing can run until the other stream is done
                yield Gap(before.end_ns, min(max(before.end_ns, launched_ns), after.start_ns), after.start_ns)


@cache
def timeline(name: str) -> Timeline:
    """Of a recording by its name."""
    return Timeline(load(name))


def _step_begins(marks: Iterable[Mark]) -> Iterator[Mark]:
    """The first boundary of each step: the first batch, or backward, after an update."""
    updated = True
    for mark in marks:
        if updated and mark.kind in _BEGINS_STEP:
            yield mark
            updated = False
        updated |= mark.kind == layout.OPTIMIZER_END


def _length_ns(works: Iterable[Work], stream: int) -> int:
    """From the first beginning to the last end of a stream's work."""
    own = [work for work in works if work.stream == stream]
    return max(work.end_ns for work in own) - min(work.start_ns for work in own)


def _moved(work: Work, by_ns: int) -> Work:
    return Work(work.called_ns + by_ns, work.returned_ns + by_ns, work.start_ns + by_ns, work.end_ns + by_ns, *work[4:])


def blocking_copies(works: Iterable[Work], least_ns: int = 50_000) -> list[Wait]:
    """Calls that copy and return only when the copy is done, or nearly."""
    long = (work for work in works if work.kind == COPY and work.returned_ns - work.called_ns > least_ns)
    return [Wait("copy", work.called_ns, work.returned_ns, True) for work in long]


# -- what the GPU did, phase by phase

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
        self.starved = _union((g.begin_ns + m, g.launched_ns + m) for m in moved for g in timeline.gaps)
        self.held = _union((g.launched_ns + m, g.end_ns + m) for m in moved for g in timeline.gaps if g.is_held_up)
        self.busy = _union((work.start_ns, work.end_ns) for work in works)
        self.kernels = _union((work.start_ns, work.end_ns) for work in works if work.kind != COPY)
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
        return _within(self.kernels, self.period) / self.timeline.period_ns

    @property
    def period(self) -> Interval:
        first_ns = self.timeline.main[0].start_ns
        return first_ns, first_ns + self.timeline.period_ns

    def _add(self, before: Mark, after: Mark) -> None:
        reached = self.timeline.reached_ns(before.time_ns), self.timeline.reached_ns(after.time_ns)
        span_ns = reached[1] - reached[0]
        figures = self.phases.setdefault(phase(before.kind, after.kind), PhaseTruth())
        figures.span_ns += span_ns
        figures.starved_ns += _within(self.starved, reached)
        figures.held_up_ns += _within(self.held, reached)
        figures.device_idle_ns += span_ns - _within(self.busy, reached)


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
