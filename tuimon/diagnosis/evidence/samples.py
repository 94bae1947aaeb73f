"""Stack samples of one process, with what each shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container
from functools import cached_property

from msgspec import Struct

from tuimon.diagnosis.evidence.lines import HotFunction, hottest_function, hottest_place
from tuimon.diagnosis.threshold import MOST, Threshold
from tuimon.session.loop_tree.activity import Activity
from tuimon.session.loop_tree.frame_table import Function
from tuimon.session.loop_tree.stacks import StackSample
from tuimon.session.rows import HotLine
from tuimon.session.samples.process_samples import ProcessSamples
from tuimon.session.session import SessionView

MIN_SAMPLES = Threshold(
    10,
    "samples of a thread from which a share of them is used at all",
    "our choice: with 10 samples a share is known to within 31 points (95 %), enough to tell most from few",
)
#: Phases in which nothing but training runs, and the model.
_TRAINING = ("forward", "backward", "optimizer")


class ThreadSamples(Struct, frozen=True, dict=True):
    """All samples of one thread over the last 30 s."""

    stacks: tuple[StackSample, ...] = ()

    @cached_property
    def total(self) -> int:
        """How many samples."""
        return sum(stack.count for stack in self.stacks)

    @cached_property
    def activities(self) -> Counter[Activity]:
        """Samples by what the thread was doing."""
        counts: Counter[Activity] = Counter()
        for stack in self.stacks:
            counts[stack.activity] += stack.count
        return counts

    @cached_property
    def training_path(self) -> frozenset[tuple[str, str]]:
        """The user's functions that lead to the model and to the update: what they call is not theirs."""
        return frozenset().union(*(stack.functions for stack in self.stacks if stack.phase in _TRAINING))

    def in_phase(self, phase: str) -> ThreadSamples:
        """The samples of one phase."""
        return self.where(lambda stack: stack.phase == phase)

    def in_phases(self, phases: Container[str]) -> ThreadSamples:
        """The samples of several phases."""
        return self.where(lambda stack: stack.phase in phases)

    def where(self, matches: Callable[[StackSample], bool]) -> ThreadSamples:
        """The samples that match."""
        return ThreadSamples(tuple(stack for stack in self.stacks if matches(stack)))

    @cached_property
    def whole(self) -> ThreadSamples:
        """The samples without those that end in a call of a module, which do not tell what it runs.

        The dropped stacks are rare ones, merged for the log, or were read while they changed.
        """
        calls = {call for stack in self.stacks for call in stack.module_calls}
        return self.where(lambda stack: stack.frames not in calls)

    @cached_property
    def in_steps(self) -> ThreadSamples:
        """The samples without evaluation."""
        return self.where(lambda stack: stack.phase != "eval")

    @cached_property
    def through(self) -> Counter[Function]:
        """How many samples go through each function of the user's."""
        counts: Counter[Function] = Counter()
        for stack in self.stacks:
            counts.update(dict.fromkeys(stack.functions, stack.count))
        return counts

    @property
    def mostly_read(self) -> bool:
        """True if most samples wait for a file or the network, or sleep, as a slow read may look: none computes."""
        return self.part_where(lambda stack: stack.activity in ("io", "sleep")) >= MOST

    @property
    def hottest(self) -> HotFunction | None:
        """The user's function with most of the samples, at its hottest line."""
        return self.hottest_where(lambda _: True)

    def hottest_where(self, matches: Callable[[StackSample], bool]) -> HotFunction | None:
        """The same of the samples that match; its share is of all of them."""
        return hottest_place((stack.place if matches(stack) else None, stack.count) for stack in self.stacks)

    def part_where(self, matches: Callable[[StackSample], bool]) -> float:
        """Share (0..1) of the samples that match, however few there are; 0 without any."""
        return sum(stack.count for stack in self.stacks if matches(stack)) / self.total if self.total else 0.0

    def share_where(self, matches: Callable[[StackSample], bool]) -> float | None:
        """Share (0..1) of the samples that match; None with fewer than MIN_SAMPLES."""
        return None if self.total < MIN_SAMPLES else self.part_where(matches)


def thread_samples(sampled: ProcessSamples | None, tid: int) -> ThreadSamples:
    """The samples of one thread, without those whose place is unknown; none if its process is not sampled."""
    samples = sampled.samples_of(tid) if sampled is not None else ()
    return ThreadSamples(tuple(sample for sample in samples if not sample.is_lost))


class StackEvidence(Struct, frozen=True, dict=True):
    """The stack samples of one process over the last 30 s; read on first use, and once."""

    pid: int
    _view: SessionView

    @cached_property
    def are_taken(self) -> bool:
        """True if there have been any in the run."""
        samples = self._view.process_samples(self.pid)
        return samples is not None and samples.samples > 0

    @cached_property
    def main(self) -> ThreadSamples:
        """Samples of the training thread."""
        return self._of(self._view.session.training_tid(self.pid))

    @cached_property
    def data_phase(self) -> ThreadSamples:
        """Samples of the training thread in the data phase."""
        return self.main.in_phase("data")

    @cached_property
    def other_threads(self) -> dict[int, ThreadSamples]:
        """Samples of the other Python threads, by thread id."""
        samples = self._view.process_samples(self.pid)
        return {tid: self._of(tid) for tid in (samples.tids() if samples else ()) if samples and tid != samples.tid}

    def _of(self, tid: int) -> ThreadSamples:
        return thread_samples(self._view.process_samples(self.pid), tid)

    def hot_lines(self, phase: str | None = None) -> tuple[HotLine, ...]:
        """Innermost user lines of the training thread in a phase (None: in all), most samples first."""
        return self._view.hot_lines(self.pid, phase)

    def hottest_in(self, phase: str) -> HotFunction | None:
        """The user's function with most samples of the training thread in a phase."""
        return hottest_function(self.hot_lines(phase))


def with_callees(
    hot: HotFunction | None, samples: ThreadSamples, path: Collection[tuple[str, str]] = ()
) -> HotFunction | None:
    """The function with the share of all samples that pass through it; as it is where it is on the ``path``.

    ``samples``: those that its share is of; ``path``: functions, by file and name, that call the training itself.
    """
    if hot is None or not samples.total or (hot.place.file, hot.place.function) in path:
        return hot
    own = (hot.place.file, hot.place.function)
    inside = sum(stack.count for stack in samples.stacks if own in stack.functions)
    return hot._replace(share=max(hot.share, inside / samples.total), samples=max(hot.samples, inside))
