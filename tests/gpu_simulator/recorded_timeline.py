"""A recorded training, its steps repeated without end: when the CPU launched what, and when the GPU ran it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import NamedTuple

from tests.gpu_simulator.recording import COPY, MAIN, Mark, Recording, Wait, Work, load
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
        self._others_called = [work.called_ns for work in others]
        self._others_ended = list(accumulate((work.end_ns for work in others), max))  # all that were called by then
        self.period_ns = max(
            end_ns - self.begin_ns, *(_length_ns(self.works, s) for s in {w.stream for w in self.works})
        )
        self._called = [work.called_ns for work in self.main]
        self._stream_waits = [wait.begin_ns for wait in self.waits if wait.kind == "stream_wait"]
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
        at = bisect_right(self._called, time_ns - period * self.period_ns) - 1
        return self._main(period, at), self._main(period, at + 1)

    def _main(self, period: int, at: int) -> Work:
        more, index = divmod(at, len(self.main))
        return _moved(self.main[index], (period + more) * self.period_ns)

    def _held_until_ns(self, since_ns: int, time_ns: int) -> int:
        """The main stream waits for what other streams were given before the latest wait that lies in between; or 0."""
        period = (time_ns - self.begin_ns) // self.period_ns
        moved_ns = period * self.period_ns
        at = bisect_right(self._stream_waits, time_ns - moved_ns) - 1
        waited_ns = self._stream_waits[at] + moved_ns if at >= 0 else -1
        if waited_ns <= since_ns:
            return 0
        ends = [self._others_done_ns(waited_ns, moved_ns) for moved_ns in (moved_ns - self.period_ns, moved_ns)]
        return max(ends)

    def _others_done_ns(self, called_ns: int, moved_ns: int) -> int:
        """When other streams have done what they were given by then in the period that is so much later; or 0."""
        count = bisect_right(self._others_called, called_ns - moved_ns)
        return self._others_ended[count - 1] + moved_ns if count else 0

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
