"""The steps that ended in a window, and their sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuimon.records import PhaseTime, SlowStep
from tuimon.sources.loop.step import CountedSteps, Step


class WindowSteps:
    """Sums of what ended, and single steps of it by their numbers."""

    def __init__(
        self, parts: Sequence[Step | CountedSteps], first_index: int, before: Mapping[str, int] | None = None
    ) -> None:
        """``first_index``: number of the first; ``before``: phases of the steps that were timed last, before these."""
        self.count = 0  # of all steps
        self.usual = 0  # of those of typical length, as is the sum that follows
        self.total_ns = 0
        self.timed_ns: dict[str, int] = {}  # phases of those of them that were timed
        self.slowed_ns = 0  # of the others
        self.lengths_ns: list[int] = []  # of those that are usual and timed
        self.first_index = first_index
        self._parts = parts
        self._before = before or {}
        self._slowest: tuple[int, Step] | None = None  # its number
        for part in parts:
            if isinstance(part, Step):
                self._add(part)
            else:
                self.count += part.count
                self.usual += part.count
                self.total_ns += part.total_ns

    def _add(self, step: Step) -> None:
        number = self.first_index + self.count
        self.count += 1
        if not step.usual:
            self.slowed_ns += step.total_ns
            return
        self.usual += 1
        self.total_ns += step.total_ns
        if not step.timed:
            return
        for name, duration_ns in step.phases.items():
            self.timed_ns[name] = self.timed_ns.get(name, 0) + duration_ns
        self.lengths_ns.append(step.total_ns)
        if self._slowest is None or step.total_ns > self._slowest[1].total_ns:
            self._slowest = number, step

    @property
    def phases_ns(self) -> Mapping[str, int]:
        """Time in each phase, which adds up to ``total_ns``: all are taken to be like those that were timed."""
        known = self.timed_ns or self._before
        known_ns = sum(known.values())
        if known_ns == self.total_ns or known_ns <= 0 or not self.total_ns:
            return self.timed_ns
        phases = {name: duration_ns * self.total_ns // known_ns for name, duration_ns in known.items()}
        longest = max(phases, key=phases.__getitem__)
        phases[longest] += self.total_ns - sum(phases.values())
        return phases

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
