"""The steps that ended in a window, and their sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuimon.records import PhaseTime, SlowStep
from tuimon.sources.loop.step import COUNTED, CountedSteps, Step
from tuimon.sources.markers.counted_phases import CountedPhases, summed


class WindowSteps:
    """Sums of what ended, and single steps of it by their numbers."""

    def __init__(self, parts: Sequence[Step | CountedSteps], first_index: int, counted: CountedPhases) -> None:
        """``first_index``: the number of the first; ``counted``: divides the time of those that were only counted."""
        self.count = 0  # of all steps
        self.usual = 0  # of those of typical length, as is the sum that follows
        self.total_ns = 0
        self.slowed_ns = 0  # of the others
        self.first_index = first_index
        self._parts = parts
        self._slowest: tuple[int, Step] | None = None  # its number
        steps = [part for part in parts if isinstance(part, Step) and part.usual]
        timed = [step for step in steps if step.timed]
        self.lengths_ns = [step.total_ns for step in timed]  # of those that are usual and timed
        self.phases_ns = summed([step.phases for step in steps])  # adds up to ``total_ns``
        for part in parts:
            self._add(part)
        counted.learn(timed)
        counted_ns = self.phases_ns.pop(COUNTED, 0) + self.total_ns - sum(step.total_ns for step in steps)
        if counted_ns:
            pauses_ns = [ns for part in parts if isinstance(part, CountedSteps) for ns in part.pauses_ns]
            divided = counted.divide(self.usual - len(steps), counted_ns, pauses_ns)
            self.phases_ns = summed([self.phases_ns, divided])

    def _add(self, part: Step | CountedSteps) -> None:
        number = self.first_index + self.count
        count = part.count if isinstance(part, CountedSteps) else 1
        self.count += count
        if isinstance(part, Step):
            if not part.usual:
                self.slowed_ns += part.total_ns
                return
            if part.timed and (self._slowest is None or part.total_ns > self._slowest[1].total_ns):
                self._slowest = number, part
        self.usual += count
        self.total_ns += part.total_ns

    def first(self) -> Step | CountedSteps | None:
        """The first of all."""
        return self._parts[0] if self._parts else None

    def last_end_ns(self) -> int | None:
        """When the last of all ended; None without any."""
        return self._parts[-1].end_ns if self._parts else None

    def slowest(self) -> SlowStep | None:
        """The longest of those in ``lengths_ns``; None without any."""
        if self._slowest is None:
            return None
        number, step = self._slowest
        return SlowStep(number, step.total_ns, phase_times(step.phases))

    def every(self, stride: int) -> Iterator[tuple[int, Step]]:
        """The steps whose numbers are multiples of ``stride``, with their numbers."""
        return ((number, step) for number, step in self._numbered() if number % stride == 0)

    def traced(self) -> Iterator[tuple[int, int]]:
        """The steps with which a trace began: their numbers, and when that was, in ns."""
        return ((number, step.traced_ns) for number, step in self._numbered() if step.traced_ns)

    def _numbered(self) -> Iterator[tuple[int, Step]]:
        number = self.first_index
        for part in self._parts:
            if isinstance(part, Step):
                yield number, part
            number += 1 if isinstance(part, Step) else part.count


def phase_times(sums_ns: Mapping[str, int], eval_ns: int = 0) -> list[PhaseTime]:
    """Sums as a record has them."""
    everything = {"eval": eval_ns, **sums_ns} if eval_ns else sums_ns
    return [PhaseTime(name, total_ns) for name, total_ns in everything.items() if total_ns > 0]
