"""One iteration of a training loop, or a piece of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import sub
from typing import NamedTuple

from msgspec import Struct, field


class StepFlags(NamedTuple):
    """What is known of a step beside its times."""

    backwards: int
    updates: int
    fetched: bool
    whole: bool
    timed: bool
    slowed: bool
    traced_ns: int
    after_fetch: bool


class Step(Struct):
    """Time per phase, which adds up to ``total_ns``; evaluation is left out."""

    end_ns: int = 0
    total_ns: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    backwards: int = 0
    updates: int = 0
    fetched: bool = False  # holds a fetch that trained
    whole: bool = True  # False: it was under way when the marker stream began, so how long it took is not known
    timed: bool = True  # False: some of its boundaries passed in a rest, so its phases are estimated
    slowed: bool = False  # a profiler of ours slowed it, or held it up
    traced_ns: int = 0  # when a trace began, where it is the first step of one
    after_fetch: bool = False  # the boundary at its end is a fetch

    @property
    def counts(self) -> bool:
        """True if it is a step: of one without a known beginning, at least a backward was seen.

        Without a DataLoader nothing marks the beginning of a loop's first step.
        """
        return self.whole or self.backwards > 0

    @property
    def usual(self) -> bool:
        """True if its length is typical of steps."""
        return self.whole and not self.slowed

    @property
    def flags(self) -> StepFlags:
        """All but its times."""
        return StepFlags(
            self.backwards,
            self.updates,
            self.fetched,
            self.whole,
            self.timed,
            self.slowed,
            self.traced_ns,
            self.after_fetch,
        )

    def set_flags(self, flags: StepFlags) -> None:
        """Replace all but its times."""
        self.backwards, self.updates, self.fetched, self.whole = flags[:4]
        self.timed, self.slowed, self.traced_ns, self.after_fetch = flags[4:]

    def copy(self) -> Step:
        """Another one that is alike."""
        return Step(self.end_ns, self.total_ns, dict(self.phases), *self.flags)

    def add_time(self, label: str, duration_ns: int) -> None:
        """Add time to a phase; negative to take it back."""
        self.phases[label] = self.phases.get(label, 0) + duration_ns
        self.total_ns += duration_ns

    def absorb(self, later: Step) -> None:
        """Append the piece that follows."""
        for label, duration_ns in later.phases.items():
            self.add_time(label, duration_ns)
        self.end_ns = max(self.end_ns, later.end_ns)
        self.backwards += later.backwards
        self.updates += later.updates
        self.fetched |= later.fetched
        self.whole &= later.whole
        self.timed &= later.timed
        self.slowed |= later.slowed
        self.traced_ns = self.traced_ns or later.traced_ns
        self.after_fetch = later.after_fetch


class StepRun(Struct, frozen=True):
    """Steps one after the other that differ in nothing but their times: as columns, for there may be many."""

    ends_ns: Sequence[int]  # of the step before them, and of each
    gaps_ns: Sequence[int]  # of each step, one after the other: the time of each of its labels
    labels: tuple[str, ...]  # phases, of which several may be the same
    flags: StepFlags

    def __len__(self) -> int:
        return len(self.ends_ns) - 1

    @property
    def usual(self) -> bool:
        """True if their lengths are typical of steps."""
        return self.flags.whole and not self.flags.slowed

    @property
    def timed(self) -> bool:
        """True if all their boundaries were."""
        return self.flags.timed

    def steps(self) -> Iterator[Step]:
        """Each of them."""
        return (self.step(at) for at in range(len(self)))

    def step(self, at: int) -> Step:
        """One of them."""
        length = len(self.labels)
        begin_ns, end_ns = self.ends_ns[at : at + 2]
        phases = self._phases(self.gaps_ns[at * length : (at + 1) * length])
        return Step(end_ns, end_ns - begin_ns, phases, *self.flags)

    def lengths_ns(self) -> list[int]:
        """How long each took."""
        return list(map(sub, self.ends_ns[1:], self.ends_ns))

    def sums_ns(self) -> dict[str, int]:
        """The time that all of them together spent in each phase."""
        return self._phases([sum(self.gaps_ns[at :: len(self.labels)]) for at in range(len(self.labels))])

    def _phases(self, times_ns: Sequence[int]) -> dict[str, int]:
        phases: dict[str, int] = {}
        for label, time_ns in zip(self.labels, times_ns, strict=True):
            phases[label] = phases.get(label, 0) + time_ns
        return phases
