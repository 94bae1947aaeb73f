"""Stack samples of one process, with what each shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable
from functools import cached_property
from itertools import dropwhile

from msgspec import Struct

from tuimon.diagnosis.evidence.lines import HotFunction, hottest_function
from tuimon.diagnosis.threshold import Threshold
from tuimon.records import Frame, Place
from tuimon.session.rows import HotLine
from tuimon.session.samples.activity import Activity, activity_of, awaits_process
from tuimon.session.samples.frame_table import FrameTable
from tuimon.session.samples.phases.sample import Sample
from tuimon.session.samples.process_samples import ProcessSamples
from tuimon.session.samples.stack_phase import FrameKind
from tuimon.session.session import SessionView
from tuimon.session.standing.standing import innermost_wait
from tuimon.torch_code import collates, is_module_call

MIN_SAMPLES = Threshold(
    10,
    "samples of a thread from which a share of them is used at all",
    "our choice: with 10 samples a share is known to within 31 points (95 %), enough to tell most from few",
)
#: Phases in which nothing but training runs, and the model.
_TRAINING = ("forward", "backward", "optimizer")


class StackSample(Struct, frozen=True, dict=True):
    """One stack of a thread, how often it was sampled and in which phase.

    What its frames show is looked up on first use: the frame table only grows, an id never changes its frame.
    """

    count: int
    phase: str
    _ids: list[int]
    _table: FrameTable

    @cached_property
    def frames(self) -> list[Frame]:
        """Root first."""
        return [self._table[number] for number in self._ids]

    @cached_property
    def kinds(self) -> list[FrameKind]:
        """The kind of each frame, which shows the phase."""
        return [self._table.kind(number) for number in self._ids]

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of its frames, root first."""
        return tuple(self._ids)

    @cached_property
    def module_calls(self) -> list[tuple[int, ...]]:
        """The ids up to each call of a module in it that goes on to some other frame."""
        frames = self.frames[:-1]
        return [self.ids[: i + 1] for i, frame in enumerate(frames) if is_module_call(frame.file, frame.function)]

    @cached_property
    def place(self) -> Place | None:
        """The innermost user line."""
        return self._table.user_place(self._ids)

    @cached_property
    def makes_data(self) -> bool:
        """True if an environment is stepped in it, or a model generates."""
        return self._table.maker_depth(self._ids) is not None

    @cached_property
    def awaits_message(self) -> bool:
        """True if it waits for a message of another process, be it in a library's own way; not of a loader's worker."""
        return "fetch" not in self.kinds and (self._table.awaits_message(self._ids) or awaits_process(self.frames))

    @cached_property
    def computes_metric(self) -> bool:
        """True if it is in a library's metric on which nobody trains."""
        return self._table.computes_metric(self._ids)

    @cached_property
    def collates(self) -> bool:
        """True if a batch is made of items in it."""
        return any(map(self._table.collates, self._ids))

    @property
    def frames_in_collate(self) -> list[Frame]:
        """The function that collates a batch, in a sample that does."""
        return [*dropwhile(lambda frame: not collates(frame.file, frame.function, frame.source), self.frames)][1:]

    @cached_property
    def activity(self) -> Activity:
        """The activity of the thread."""
        return activity_of(self.frames)

    @cached_property
    def may_wait_for_ranks(self) -> bool:
        """True if it is in a collective, or in backward, with none of the user's code inside: there ranks meet."""
        return innermost_wait(self.frames) == "ranks"

    @cached_property
    def functions(self) -> frozenset[tuple[str, str]]:
        """The user's functions that it passes through, by file and name."""
        return frozenset((frame.file, frame.function) for frame in self.frames if frame.user)

    def calls(self, function_part: str) -> bool:
        """True if a function whose name contains this is in the stack."""
        return any(function_part in frame.function for frame in self.frames)


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
        return ThreadSamples(tuple(stack for stack in self.stacks if stack.phase == phase))

    def in_phases(self, phases: Container[str]) -> ThreadSamples:
        """The samples of several phases."""
        return ThreadSamples(tuple(stack for stack in self.stacks if stack.phase in phases))

    @cached_property
    def whole(self) -> ThreadSamples:
        """The samples without those that end in a call of a module, which do not tell what it runs.

        Such stacks are rare ones, merged for the log, or were read while they changed.
        """
        calls = {call for stack in self.stacks for call in stack.module_calls}
        return ThreadSamples(tuple(stack for stack in self.stacks if stack.ids not in calls))

    @cached_property
    def in_steps(self) -> ThreadSamples:
        """The samples without evaluation."""
        return ThreadSamples(tuple(stack for stack in self.stacks if stack.phase != "eval"))

    def share_where(self, matches: Callable[[StackSample], bool]) -> float | None:
        """Share (0..1) of the samples that match; None with fewer than MIN_SAMPLES."""
        if self.total < MIN_SAMPLES:
            return None
        return sum(stack.count for stack in self.stacks if matches(stack)) / self.total


def thread_samples(sampled: ProcessSamples | None, tid: int, table: FrameTable) -> ThreadSamples:
    """The samples of one thread; none where its process is not sampled."""
    return resolved(sampled.samples_of(tid) if sampled else (), table)


def resolved(samples: Iterable[Sample], table: FrameTable) -> ThreadSamples:
    """Samples by frame ids, as what they show; without those of which nobody knows where they belong."""
    return ThreadSamples(tuple(StackSample(s.count, s.phase, s.stack, table) for s in samples if not s.is_lost))


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
        return thread_samples(self._view.process_samples(self.pid), tid, self._view.session.frames)

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
