"""The steps that ended in a window, and their sums; most come as runs of steps that are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuimon.records import PhaseTime, SlowStep
from tuimon.sources.loop.step import Step, StepRun


class WindowSteps:
    """Sums of what ended, and single steps of it by their numbers."""

    def __init__(self, parts: Sequence[Step | StepRun], first_index: int) -> None:
        """``first_index``: the number of the first."""
        self.count = 0  # of all steps
        self.usual = 0  # of those of typical length, as are the two sums that follow
        self.total_ns = 0
        self.phases_ns: dict[str, int] = {}
        self.slowed_ns = 0  # of the others
        self.lengths_ns: list[int] = []  # of those that are usual and timed
        self.first_index = first_index
        self._parts = parts
        self._slowest: tuple[int, int, Step | StepRun, int] | None = None  # length, number, part, place in it
        for part in parts:
            if isinstance(part, Step):
                self._add(part, [part.total_ns], part.phases)
            else:
                self._add(part, part.lengths_ns(), part.sums_ns())

    def _add(self, part: Step | StepRun, lengths_ns: list[int], phases_ns: Mapping[str, int]) -> None:
        first = self.first_index + self.count
        self.count += len(lengths_ns)
        if not part.usual:
            self.slowed_ns += sum(lengths_ns)
            return
        self.usual += len(lengths_ns)
        self.total_ns += sum(lengths_ns)
        for name, duration_ns in phases_ns.items():
            self.phases_ns[name] = self.phases_ns.get(name, 0) + duration_ns
        if not part.timed:
            return
        self.lengths_ns += lengths_ns
        longest_ns = max(lengths_ns)
        if self._slowest is None or longest_ns > self._slowest[0]:
            at = lengths_ns.index(longest_ns)
            self._slowest = longest_ns, first + at, part, at

    def first(self) -> Step | None:
        """The first of all."""
        return _step_of(self._parts[0], 0) if self._parts else None

    def last_end_ns(self) -> int | None:
        """When the last of all ended; None without any."""
        if not self._parts:
            return None
        last = self._parts[-1]
        return last.end_ns if isinstance(last, Step) else last.ends_ns[-1]

    def slowest(self) -> SlowStep | None:
        """The longest of those in ``lengths_ns``; None without any."""
        if self._slowest is None:
            return None
        length_ns, number, part, at = self._slowest
        return SlowStep(number, length_ns, phase_times(_step_of(part, at).phases))

    def every(self, stride: int) -> Iterator[tuple[int, Step]]:
        """The steps whose numbers are multiples of ``stride``, with their numbers."""
        first = self.first_index
        for part in self._parts:
            count = _count_of(part)
            for at in range(-first % stride, count, stride):
                yield first + at, _step_of(part, at)
            first += count

    def traced(self) -> Iterator[tuple[int, int]]:
        """The steps with which a trace began: their numbers, and when that was, in ns."""
        first = self.first_index
        for part in self._parts:
            if isinstance(part, Step) and part.traced_ns:
                yield first, part.traced_ns
            first += _count_of(part)


def phase_times(sums_ns: Mapping[str, int], eval_ns: int = 0) -> list[PhaseTime]:
    """Sums as a record has them."""
    everything = {"eval": eval_ns, **sums_ns} if eval_ns else sums_ns
    return [PhaseTime(name, total_ns) for name, total_ns in everything.items() if total_ns > 0]


def _count_of(part: Step | StepRun) -> int:
    return 1 if isinstance(part, Step) else len(part)


def _step_of(part: Step | StepRun, at: int) -> Step:
    return part if isinstance(part, Step) else part.step(at)
