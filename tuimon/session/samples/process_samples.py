"""Stack samples of one process: which lines the time goes to, and how they divide what markers cannot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy

from tuimon.records import Frame, Place, RangePlace, Stacks, Steps
from tuimon.session.loop_tree.frame_table import FrameTable, KnownFrame
from tuimon.session.loop_tree.phases import classify_samples
from tuimon.session.loop_tree.range_join import RangeJoin
from tuimon.session.loop_tree.roles import stack_phase
from tuimon.session.loop_tree.seen_boundaries import SeenBoundaries
from tuimon.session.loop_tree.stacks import UPDATES, StackSample, without_imports
from tuimon.session.rows import HotLine
from tuimon.session.samples.divided import OutsideTimes, phase_counts, split_shares
from tuimon.session.samples.sample_windows import LoopWindow, RunSamples
from tuimon.session.samples.set_up import SetUp, UnmarkedSteps
from tuimon.session.samples.spent import Spent
from tuimon.session.samples.thread_stacks import ThreadStacks
from tuimon.session.steps.split_shares import SplitShares
from tuimon.session.windows import Span

#: Phases of boundaries that show a training loop; programs run a model after it, too.
_OF_LOOP = UPDATES | {"data"}
#: How many lines ``hot_lines`` lists.
_HOT_LINES = 20


class ProcessSamples:
    """Samples of one process over the last 30 s of its steps; of any 30 s without markers."""

    def __init__(self, pid: int, frames: FrameTable) -> None:
        self.tid = pid  # the thread that trains
        self._frames = frames
        self._window = LoopWindow()
        self._selected: list[Stacks] | None = None  # the windows of a selection; None: those of the last 30 s
        self._run = RunSamples()
        self.begin_s = -math.inf  # when the loop began, as far as is known
        self._unmarked = UnmarkedSteps(frames)
        self._has_markers = False
        self._has_optimizer = False  # whether markers show one
        self._has_trained = False  # whether they show a backward or an update
        self._marks_evaluation = False  # whether they show evaluation
        self._has_loader = False  # whether markers show that it fetches from a DataLoader
        self._steps_ended = 0  # by markers
        self._classified: list[StackSample] | None = None  # None: not yet since something has changed
        self._seen = SeenBoundaries()
        self._outside = OutsideTimes()
        self.join = RangeJoin()
        self.threads = ThreadStacks(frames)
        self.set_up = SetUp(frames)
        self.spent = Spent(frames)
        self.latest: Stacks | None = None
        self.failed = 0
        self.samples = 0

    def add_window(self, record: Stacks) -> None:
        """Fold a window of samples."""
        self.failed += record.failed
        self.samples += record.samples
        if record.loop:
            self._seen.add_noted(record.loop, self._frames)
        self.threads.add_names(record)
        if not record.samples:
            return
        self.latest = record
        self.threads.add_window(record)
        self.spent.add_window(record, self.tid)
        if not self._unmarked.has_whole_step:
            self._find_steps(record)
        if self._outside.covers(record):
            return
        self._run.append(record)
        if record.t - record.window_s >= self.begin_s:
            self._window.append(record)
            if not self._has_markers:
                self._window.add_unmarked(record, *self._of_loop(record))
            self._classified = None

    def over(self, span: Span) -> ProcessSamples:
        """The same of a stretch of the run."""
        begin_s, end_s = max(span.begin_s, self.begin_s), min(span.end_s, self.steps_end_s)
        return self._of(self._run.between(Span(begin_s, end_s)))

    def now(self) -> ProcessSamples:
        """The same with what a step under way shows, where that lasts for long."""
        return self._of(self._window.latest()) if self._window.step_is_long else self

    def _of(self, records: list[Stacks]) -> ProcessSamples:
        out = copy(self)
        out._selected = records
        out._classified = None
        return out

    def end_steps(self, record: Steps) -> None:
        """Markers show steps that have ended, or what was evaluated in the one under way."""
        self._has_markers = True
        self.spent.end_steps(record)
        was_until_s = self.steps_end_s
        self._window.boundary_s = math.inf if record.open_for_s is None else record.t - record.open_for_s
        if self.steps_end_s != was_until_s or (record.updates and not self._has_optimizer):
            self._classified = None
        self._has_optimizer |= record.updates > 0
        if not self._has_trained and (record.backwards or record.updates):
            self._has_trained, self._classified = True, None
        if not record.count and not record.eval_count:
            return
        if record.eval_count and not self._marks_evaluation:
            self._marks_evaluation, self._classified = True, None
        self._steps_ended += record.count
        was_long = self._window.step_is_long
        self._window.end_steps(record.t if record.eval_count or record.last_step_s is None else record.last_step_s)
        if was_long:
            self._classified = None

    def leave_out_before(self, t: float) -> None:
        """Leave out the windows that began before the first step at ``t``: samples of the set-up belong to no step."""
        self.begin_s = t
        self.spent.begin(t)
        self.threads.leave_out_before(t)
        self._keep(lambda record: record.t - record.window_s >= t)

    def _of_loop(self, record: Stacks) -> tuple[int, int]:
        """How many samples its training thread has, and how many show the loop: fetches, backward, updates.

        In a loop without the last two those in the model show it as well.
        """
        of_loop = _OF_LOOP | {"forward"} if self.forward_only else _OF_LOOP
        own = [stack for stack in record.stacks if stack.tid == self.tid]
        shown = sum(stack.count for stack in own if self._boundary(stack.frames) in of_loop)
        return sum(stack.count for stack in own), shown

    def leave_out_outside(self, record: Steps) -> None:
        """Leave out the samples of the time in which the program was outside its loop."""
        self._outside.add_window(record)
        begin_s = record.t - record.window_s
        self._keep(lambda samples: samples.t <= begin_s or not self._outside.covers(samples))

    def _keep(self, is_kept: Callable[[Stacks], bool]) -> None:
        self._window.keep(is_kept)
        self._run.keep(is_kept)
        self._classified = None

    def note_markers(self) -> None:
        """Hooks are in the process: what ends its steps, they show."""
        self._has_markers = True

    def note_training_thread(self, tid: int) -> None:
        """Markers show which thread trains."""
        if tid != self.tid:
            self.tid = tid
            self._classified = None

    def note_loader(self) -> None:
        """Markers show that it fetches from a DataLoader."""
        if not self._has_loader:
            self._has_loader = True
            self._classified = None

    def add_range_places(self, places: Sequence[RangePlace]) -> None:
        """Add where user ranges were opened and closed."""
        if places and self.join.add_places(places):
            self._classified = None

    def _find_steps(self, record: Stacks) -> None:
        """Steps begin with the first window in which one is seen; by markers, if there are any, with the first step.

        A window after others that show none is of the set-up in part: without markers they begin after it.
        """
        is_mixed = self.set_up.doing is not None and not self._has_markers
        self.set_up.add_window(record)
        had_begun, was_forward_only = self._unmarked.have_begun, self.forward_only
        tid = self._unmarked.add_window(record, self.tid)
        if tid is None:
            if self.forward_only and not was_forward_only:
                self.leave_out_before(max(self.begin_s, self._unmarked.forward_since_s or 0.0))
            return
        self.note_training_thread(tid)
        if not had_begun:
            since_s = record.t if is_mixed else record.t - record.window_s
            self.leave_out_before(max(self.begin_s, since_s))

    @property
    def steps_end_s(self) -> float:
        """When its steps have ended, if none has for unusually long; else infinite."""
        return self._window.end_s

    @property
    def has_whole_step(self) -> bool:
        """True if samples have shown a whole step: what they show before that belongs to the set-up."""
        return self._unmarked.has_whole_step or self.forward_only

    @property
    def forward_only(self) -> bool:
        """True if it makes steps without backward and update, as markers, or without them samples, have shown."""
        if self._has_markers:
            return self._steps_ended > 0 and not self._has_trained
        return self._unmarked.forward_since_s is not None

    # ---- the training thread

    def hot_lines(self, phase: str | None = None) -> list[HotLine]:
        """Innermost user lines of the training thread in a phase or range (all if None), most samples first.

        Shares are of all its samples in that phase, also of those without user code.
        """
        samples = without_imports(self._samples())
        return self._hot_lines(sample for sample in samples if sample.lies_in(phase) and not sample.is_lost)

    def hot_lines_under(self, is_it: Callable[[KnownFrame], bool]) -> list[HotLine]:
        """Like ``hot_lines``, for what such a function calls, of the samples that have one in their stack."""
        calls = []
        for sample in self._samples():
            depth = next((i for i, frame in enumerate(sample.frames) if is_it(frame)), None)
            if depth is not None:
                calls.append(sample.at(sample.phase, sample.frames[depth:]))
        return self._hot_lines(without_imports(calls))

    def _hot_lines(self, samples: Iterable[StackSample]) -> list[HotLine]:
        counts: Counter[Place] = Counter()
        total = 0
        for sample in samples:
            total += sample.count
            if sample.place is not None:
                counts[sample.place] += sample.count
        return [HotLine(place, n / total, n, total) for place, n in counts.most_common(_HOT_LINES)]

    def collate_share(self) -> float | None:
        """Share (0..1) of the training thread's samples in what makes batches of items; None without any."""
        samples = self._samples()
        total = sum(sample.count for sample in samples)
        hits = sum(sample.count for sample in samples if sample.has("collates"))
        return hits / total if total else None

    def unsure_counts(self) -> Counter[str]:
        """How many of a phase may be of another, as nothing shows yet which (``StackSample.unsure``)."""
        counts: Counter[str] = Counter()
        for sample in self._samples():
            counts[sample.phase] += sample.count if sample.unsure else 0
        return counts

    def phase_counts(self) -> Counter[str]:
        """Samples of the training thread by phase, which frames and the lines of the loop show; without imports."""
        return phase_counts(self._samples())

    @property
    def covered_s(self) -> float:
        """From the beginning of the first window to the end of the last: as much of the run as the shares are of."""
        records = self._records()
        return records[-1].t - min(record.t - record.window_s for record in records) if records else 0.0

    def between_shares(self) -> SplitShares | None:
        """How the samples outside fetch, backward and optimizer divide; None without any."""
        return split_shares(self._samples())

    def calls_backward(self, stack: Iterable[Frame]) -> bool | None:
        """True if a stack is in a function of the user's that calls backward; None while none is known."""
        calling = self._seen.calling_backward()
        return any((frame.file, frame.function) in calling for frame in stack) if calling else None

    def noted_loops(self) -> list[tuple[int, ...]]:
        """Whole stacks (frame ids, root first) in the boundaries of the loop, as its hooks noted them."""
        return [tuple(noted.ids) for noted in self._seen.noted]

    # ---- any thread

    def samples_of(self, tid: int) -> list[StackSample]:
        """The samples of one thread; off the training thread only boundaries show a phase, else it is "none"."""
        if tid == self.tid:
            return self._samples()
        samples = [StackSample.unplaced(self._frames.stack(ids), n) for ids, n in self._merged(tid).items()]
        return [sample.at("none") if sample.phase == "rest" else sample for sample in samples]

    def _boundary(self, stack: Sequence[int]) -> str:
        """The phase that a boundary in a stack (frame ids) shows, else ``rest``."""
        return stack_phase([frame.kind for frame in self._frames.stack(stack)])

    def classify(self, stacks: Mapping[tuple[int, ...], int]) -> list[StackSample]:
        """These samples of the training thread (frame ids, root first -> count), by all that is known of its loop."""
        return classify_samples(
            stacks,
            self._frames,
            self.join,
            self._has_loader,
            self._seen,
            self._has_optimizer,
            forward_only=self.forward_only,
            marks_evaluation=self._marks_evaluation,
        )

    def tids(self) -> list[int]:
        """The threads with samples, the one that trains first."""
        tids = {stack.tid for record in self._records() for stack in record.stacks}
        return sorted(tids, key=lambda tid: (tid != self.tid, tid))

    def _samples(self) -> list[StackSample]:
        if self._classified is None:
            self._classified = self.classify(self._merged(self.tid))
        return self._classified

    def _records(self) -> list[Stacks]:
        return self._window.of_steps() if self._selected is None else self._selected

    def _merged(self, tid: int) -> dict[tuple[int, ...], int]:
        """Each stack of a thread in the window, and how often it was sampled."""
        merged: dict[tuple[int, ...], int] = {}
        for record in self._records():
            for stack in record.stacks:
                if stack.tid == tid:
                    key = tuple(stack.frames)
                    merged[key] = merged.get(key, 0) + stack.count
        return merged
