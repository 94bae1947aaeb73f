"""The steps that ended in a window, their sums, and which of them are kept one by one, to compare ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuimon.records import BETWEEN, PhaseTime, RankStep, SlowStep
from tuimon.sources.loop.step import COUNTED, CountedSteps, Step
from tuimon.sources.markers.counted_phases import CountedPhases, summed
from tuimon.sources.window_lengths import stride_of

#: Most steps of an interval that are kept: about 45 bytes of log each; in half a minute 60 to 120 of a fast loop.
_MOST = 4
_PHASES = ("data", "forward", "backward", "optimizer", "other", BETWEEN)


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


def rank_steps(steps: WindowSteps, end_ns: int, intervals: int = 1) -> list[RankStep]:
    """Steps whose number is a multiple of a power of two: other ranks, which make as many, choose the same.

    ``intervals``: the steps are of so many; the windows of other ranks may be shorter.
    """
    stride = stride_of(steps.count, _MOST * intervals)
    return [_rank_step(index, step, end_ns) for index, step in steps.every(stride) if step.usual and step.timed]


def _rank_step(index: int, step: Step, end_ns: int) -> RankStep:
    return RankStep(index, max(0, end_ns - step.end_ns) // 1000, *_parts_us(step))


def _parts_us(step: Step) -> Iterator[int]:
    return (max(0, step.phases.get(name, 0)) // 1000 for name in _PHASES)
