"""The stack samples of one process: its windows, facts about its loop, and the samples of a span with phases."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.bounds import MANY_HELD, Latest, has_room
from tuimon.records import TRAINING_PHASES, Frame, Place, RangePlace, Stacks, Steps
from tuimon.session.series import LATEST, WINDOW_S, Series, Span, Stretch
from tuimon.session.stacks.loop import Fact, placed
from tuimon.session.stacks.samples import Sample, Samples
from tuimon.session.stacks.set_up import CurrentWork, Spent, UnmarkedSteps, work_after
from tuimon.session.stacks.trie import StackNode, Trie, Window, down_to_user, place_of

#: A step under way for this long (s) is kept apart; markers may come a window later than samples.
_LONG_STEP_S = 2.0
#: Without markers it must also last this many times the longest stretch without samples of the loop before it
_UNUSUAL = 2.0
#: ... in which this many samples of the loop were to be expected: at least one then comes in 95 of 100 cases (Poisson).
_EXPECTED = 3
#: Most stacks of a thread that are kept when windows are joined; rarer ones count for their callers.
_JOINED = 64


class _Stacks(Series[Stretch]):
    """Windows of a thread: how often it was sampled in each stack. Rare ones of long ago count for their callers."""

    __slots__ = ()
    begin_inside = True

    def __init__(self) -> None:
        super().__init__(Stretch, 16)  # of each length: those of the last 30 s as they were recorded, of 2 s each

    def shrunk(self, counts: dict[StackNode, int]) -> dict[StackNode, int]:
        """The most frequent stacks; one that is rarer counts for its caller, unless that is in another phase."""
        kept = counts
        while len(kept) > _JOINED:
            kept = dict(counts) if kept is counts else kept
            for node in nsmallest(len(kept) - _JOINED, kept, key=kept.__getitem__):
                n, caller = kept.pop(node), node.parent
                if caller is not None and caller.parent is not None and caller.boundary == node.boundary:
                    kept[caller] = kept.get(caller, 0) + n
        return kept


class Windows:
    """The windows of one process, since its loop began.

    Phases cover steps that have ended. If samples of an evaluation at the end of a run were counted, its lines would be
    blamed for time in which they do not run. Without markers the loop goes on as long as windows show it: training has
    bursts, so a stretch without the loop is left out only if it is much longer than those before. Rollouts of 12 s that
    each end in updates all count; an analysis of 30 s after the last update does not. A loop that shows in one of a
    hundred samples has not paused if sixty show none of it.
    """

    def __init__(self) -> None:
        self._threads = Latest[int, _Stacks]()
        self._outside: deque[tuple[Span, float]] = deque(maxlen=64)  # of steps, with the share (0..1) outside the loop
        self.begin_s = -math.inf  # when the loop began, as far as is known
        self._latest_s = -math.inf  # when the latest window began
        self._until_s = -math.inf  # when the last step ended
        #: When the loop came to its latest boundary, if markers show that it has stood still since.
        self.boundary_s = math.inf
        self._longest_s = 0.0  # between windows that show the loop, if only samples do
        self._sampled = self._shown = self._sampled_since = 0  # samples to the loop's last window, its own, since

    def add(self, window: Window) -> bool:
        """Add a window, unless the program was outside its loop in it; returns whether it was added."""
        if window.begin_s < self.begin_s or self._is_outside(window.begin_s, window.t):
            return False
        was_long, self._latest_s = self.step_is_long, max(self._latest_s, window.begin_s)
        if self.step_is_long and not was_long:
            for own in self._threads.values():
                own.keep_apart(self.end_s)
        for tid, counts in window.counts.items():
            own = self._threads[tid] = self._threads.get(tid) or _Stacks()
            own.append(Stretch(window.begin_s, window.t), counts)
        return True

    def end_steps(self, t: float) -> None:
        """Note that steps, or an evaluation within one, have ended at this moment, as markers show."""
        self._longest_s, self._sampled, self._until_s = 0.0, 0, max(self._until_s, t)

    def add_unmarked(self, window: Window, sampled: int, shown: int) -> None:
        """Add a window of a process without markers; ``shown``: how many of its ``sampled`` samples show the loop."""
        self._sampled_since += sampled
        if not shown:
            return
        self._sampled, self._shown, self._sampled_since = self._sampled + self._sampled_since, self._shown + shown, 0
        if self._until_s > -math.inf:
            self._longest_s = max(self._longest_s, window.begin_s - self._until_s)
        self._until_s = max(self._until_s, window.t)

    def leave_out_before(self, t: float) -> None:
        self.begin_s = t
        for own in self._threads.values():
            own.drop(lambda row: row.begin_s < t)

    def skip_outside_loop(self, record: Steps) -> None:
        """Drop the samples taken while the program was outside its loop, according to a window of steps."""
        begin_s, outside_s = record.t - record.window_s, min(record.window_s, record.outside_s or 0.0)
        self._outside.append((Span(begin_s, record.t), outside_s / record.window_s if record.window_s else 0.0))
        for own in self._threads.values():
            own.drop(lambda row: row.end_s > begin_s and self._is_outside(*row))

    def _is_outside(self, begin_s: float, end_s: float) -> bool:
        """True if the program was outside its loop for at least half of a window, if that time is spread evenly."""
        outside_s = sum(
            max(0.0, min(end_s, span.end_s) - max(begin_s, span.begin_s)) * ratio for span, ratio in self._outside
        )
        return outside_s > 0 and outside_s >= (end_s - begin_s) / 2

    @property
    def step_is_long(self) -> bool:
        """True if the open step has lasted for long."""
        if math.isinf(self._until_s) or self._shown * self._sampled_since < _EXPECTED * self._sampled:
            return False
        return self._latest_s - self._until_s >= max(_LONG_STEP_S, _UNUSUAL * self._longest_s)

    @property
    def end_s(self) -> float:
        """The end of the latest step, if the one under way is long; else infinity.

        If a step ended in the latest window and the loop has stood still since, the moment at which it stopped.
        """
        return min(self._until_s, self.boundary_s) if self.step_is_long else math.inf

    def of(self, tid: int) -> Series[Stretch]:
        return self._threads.get(tid) or _Stacks()

    def tids(self, span: Span) -> list[int]:
        """The threads with samples in a span."""
        return [tid for tid, own in self._threads.items() if own.over(span) is not None]


#: Phases of boundaries that show a training loop; programs run a model after it, too.
_LOOP_PHASES = {*TRAINING_PHASES, "data"}
#: The last 30 s.
RECENT = Span(last_s=WINDOW_S)


class ProcessStacks:
    """Folds a process's stack samples, and the facts about its loop that markers show."""

    def __init__(self, pid: int, trie: Trie) -> None:
        self.pid = self.tid = pid  # ``tid``: the thread that trains
        self._trie = trie
        self._windows = Windows()
        self._unmarked = UnmarkedSteps()
        self._facts: frozenset[Fact] = frozenset()
        self._turn = pid  # windows count from the pid on, so that processes take turns
        self._answers: dict[tuple[object, ...], Samples] = {}  # by all that they depend on, since the latest windows
        self._noted: list[Sample] = []  # in the boundaries of the loop, by its hooks
        self._ranges = RangeJoin()
        self.threads = LatestStacks()
        self.current_work: CurrentWork | None = None  # before its first step
        self.spent = Spent()
        self.latest_s: float | None = None  # the end of the latest window with samples

    # ---- folding

    def add_window(self, record: Stacks, every: int = 1) -> None:
        """Fold a window of samples; the samples of the last 30 s are placed again at each ``every``-th window.

        To place the samples of a rank takes about a millisecond, and there may be a thousand ranks.
        """
        if record.loop:
            self._noted = [Sample(self._trie.node(each.frames), 1, each.boundary) for each in record.loop]
        self.threads.add_names(record)
        if not record.samples:
            return
        self.latest_s, window = record.t, Window.of(record, self._trie)
        self.threads.add_window(window)
        self.spent.add_window(window, self.tid)
        if not self._unmarked.has_whole_step:
            self._find_steps(window, record.cycles)
        is_of_loop, own = self._windows.add(window), window.counts.get(self.tid, {})
        if is_of_loop and "markers" not in self._facts:
            of_loop = _LOOP_PHASES | {"forward"} if self.forward_only else _LOOP_PHASES
            shown = sum(count for node, count in own.items() if node.boundary in of_loop)
            self._windows.add_unmarked(window, sum(own.values()), shown)
        self._turn += 1
        is_due = self._turn % every == 0
        self._answers = (
            {} if is_due else {key: one for key, one in self._answers.items() if key[1:3] == (RECENT, False)}
        )

    def _find_steps(self, window: Window, cycles: int | None) -> None:
        """Steps begin with the first window in which one is seen; by markers, if there are any, with the first step.

        If windows before it show no step, a part of it is set-up: without markers steps begin after it.
        """
        is_mixed = self.current_work is not None and "markers" not in self._facts
        self.current_work = work_after(self.current_work, window, self.pid)
        had_begun, was_forward_only = self._unmarked.have_begun, self.forward_only
        tid = self._unmarked.add_window(window, cycles, self.tid)
        if tid is not None and self._facts.isdisjoint(("steps", "training")):  # else markers have shown it
            self.tid = tid
        if tid is not None and not had_begun:
            self.leave_out_before(max(self.begin_s, window.t if is_mixed else window.begin_s))
        elif tid is None and self.forward_only and not was_forward_only:
            self.leave_out_before(max(self.begin_s, self._unmarked.forward_since_s or 0.0))

    def add_steps(self, record: Steps, *, has_loop: bool) -> None:
        """Fold what markers show in a window; ``has_loop``: whether they have shown a loop so far."""
        if has_loop:  # steps have ended, or an evaluation within the step under way
            self.tid = record.tid or record.pid
            self.spent.end_steps(record)
            shown: dict[Fact, bool] = {
                "markers": True,
                "steps": record.count > 0,
                "training": record.backwards > 0 or record.updates > 0,
                "optimizer": record.updates > 0,
                "evaluation": record.eval_count > 0,
            }
            self.learn(*(fact for fact, is_shown in shown.items() if is_shown))
            self._windows.boundary_s = math.inf if record.open_for_s is None else record.t - record.open_for_s
            if record.count or record.eval_count:
                late_s = None if record.eval_count else record.last_step_s
                self._windows.end_steps(ended_s := record.t if late_s is None else late_s)
                self.threads.end_steps(ended_s)
        if record.outside_s:
            self._windows.skip_outside_loop(record)
            self._answers.clear()
        self._ranges.add_places(record.range_places)

    def leave_out_before(self, t: float) -> None:
        """Leave out the windows that began before the first step at ``t``: samples of the set-up belong to no step."""
        self.spent.begin(t)
        self.threads.begin_s = t
        self._windows.leave_out_before(t)
        self._answers.clear()

    def learn(self, *facts: Fact) -> None:
        self._facts |= {*facts}

    # ---- what is known of the loop

    @property
    def begin_s(self) -> float:
        """When the loop began, as far as is known."""
        return self._windows.begin_s

    @property
    def steps_end_s(self) -> float:
        """The end of its latest step, if none has ended for unusually long; else infinity."""
        return self._windows.end_s

    @property
    def has_whole_step(self) -> bool:
        """True if samples have shown a whole step: what they show before that belongs to the set-up."""
        return self._unmarked.has_whole_step or self.forward_only

    @property
    def forward_only(self) -> bool:
        """True if it makes steps without backward and update, by markers or, without them, by samples."""
        if "markers" in self._facts:
            return "steps" in self._facts and "training" not in self._facts
        return self._unmarked.forward_since_s is not None

    def calls_backward(self, stack: Iterable[Frame]) -> bool | None:
        """True if a stack is in a user function that calls backward or the update; None if none is known."""
        passes = (node for node in self._passes() if node.boundary == "backward")
        callers = (down_to_user(node.before("backward", "optimizer")) for node in (*passes, *self.noted_loops()))
        calling = {caller[-1].code for caller in callers if caller}
        return any((frame.file, frame.function) in calling for frame in stack) if calling else None

    def noted_loops(self) -> list[StackNode]:
        """Whole stacks in the boundaries of the loop, as its hooks noted them."""
        return [noted.node for noted in self._noted]

    # ---- samples

    def over(self, span: Span = RECENT, tid: int | None = None, *, now: bool = False) -> Samples:
        """The samples of the thread that trains, or of another one, in a span, until its steps end.

        ``now``: later samples as well. Off the training thread only boundaries show a phase, else it is "none".
        """
        tid, within = self.tid if tid is None else tid, span if now else self._until_end(span)
        key = tid, span, now, within, self.tid, self._facts, self._ranges.number
        if key not in self._answers:
            own = self._windows.of(tid)
            counts, known = own.counts(within), own.over(within)
            rows = (
                self.placed(counts)
                if tid == self.tid
                else tuple(
                    Sample(node, n, "none" if node.boundary == "rest" else node.boundary) for node, n in counts.items()
                )
            )
            self._answers[key] = Samples(rows, known.end_s - known.begin_s if known is not None else 0.0)
        return self._answers[key]

    def tids(self, span: Span = RECENT, *, now: bool = False) -> list[int]:
        """The threads with samples in a span, the one that trains first."""
        found = self._windows.tids(span if now else self._until_end(span))
        return sorted(found, key=lambda tid: (tid != self.tid, tid))

    def last_of(self, tid: int) -> Sequence[Frame]:
        """A thread's most frequent stack in the latest window that has samples of it, root first."""
        counts = self._windows.of(tid).counts(LATEST)
        return max(counts, key=counts.__getitem__).frames if counts else ()

    def _until_end(self, span: Span) -> Span:
        return span._replace(end_s=min(span.end_s, self._windows.end_s))

    def placed(self, counts: Mapping[StackNode, int]) -> tuple[Sample, ...]:
        """These samples of the training thread, by all that is known of its loop."""
        facts: set[Fact] = {*self._facts, "steps"} if self.forward_only else {*self._facts}
        found = placed(counts, facts, self._noted, self._passes)
        if not self._ranges.number:
            return found
        return tuple(replace(sample, ranges=self._ranges.ranges_of(sample.node.frames)) for sample in found)

    def _passes(self) -> dict[StackNode, int]:
        counts = self._windows.of(self.tid).counts()
        return {node: n for node, n in counts.items() if node.boundary in ("forward", "backward")}


class LatestStack(NamedTuple):
    """The most frequent stack of a thread in the latest window."""

    node: StackNode
    share: float  # of the thread's samples in the window
    same_for_s: float  # how long all of its samples have been of this one stack; 0: some are of others
    begin_s: float  # of the window


class LatestStacks:
    """The threads of a process in its latest window: their names and places, and how long each has not moved."""

    def __init__(self) -> None:
        self.begin_s = -math.inf  # of the steps: a window before it shows the set-up
        self._names = Latest[int, str](MANY_HELD)
        self._latest: Window | None = None
        self._unmoved: dict[int, tuple[StackNode, float]] = {}  # tid: its one stack, since when
        # tid: the stack that it kept for longest since the latest step, in several windows
        self._stood = Latest[int, tuple[StackNode, Span]]()
        self._stepped_s = -math.inf

    def add_names(self, record: Stacks) -> None:
        """Add the names of the threads in a record, also of those that are parked."""
        for tid, name in (*((stack.tid, stack.thread) for stack in record.stacks), *record.parked):
            self._names[tid] = name

    def add_window(self, window: Window) -> None:
        """Make a window with samples the latest one."""
        self._latest, unmoved = window, {}
        for tid, counts in window.counts.items():
            if len(counts) == 1:
                (only,) = counts
                before = self._unmoved.get(tid)
                unmoved[tid] = before if before and before[0] is only else (only, window.begin_s)
        self._unmoved = unmoved
        for tid, (only, since_s) in unmoved.items():
            stands = Span(max(since_s, self._stepped_s), window.t)
            if since_s < window.begin_s and stands.end_s - stands.begin_s > self.stood(tid)[1]:
                self._stood[tid] = only, stands

    def end_steps(self, t: float) -> None:
        """Note when the latest step ended."""
        self._stepped_s = t
        for tid in [tid for tid, (_, stands) in self._stood.items() if stands.begin_s < t]:
            del self._stood[tid]

    def stood(self, tid: int) -> tuple[StackNode | None, float]:
        """The stack that a thread has kept for longest since the latest step, and the seconds."""
        node, stands = self._stood.get(tid, (None, None))
        return node, stands.end_s - stands.begin_s if stands is not None else 0.0

    def name_of(self, tid: int) -> str | None:
        """Python's name of a thread; None for native threads, and before any sample."""
        return self._names.get(tid)

    def place_of(self, tid: int, phase: str | None = None, since_s: float | None = None) -> Place | None:
        """The place where a thread was most often in the latest window, while in the phase that markers show now.

        None if no stack of the window may be of that phase, or the window began before the steps, or ``since_s``.
        """
        if self._latest is None or self._latest.begin_s < (self.begin_s if since_s is None else since_s):
            return None
        own = self._counts(tid)
        if phase is not None:  # between boundaries and outside updates a stack need not show it
            may_be = {phase} if phase in TRAINING_PHASES else {phase, "forward", "rest"}
            own = {node: n for node, n in own.items() if node.boundary in may_be}
        return place_of(max(own, key=own.__getitem__).frames) if own else None

    def stack_of(self, tid: int) -> LatestStack | None:
        """A thread's most frequent stack of the latest window; None if that has none of it."""
        own = self._counts(tid)
        if self._latest is None or not own:
            return None
        best, unmoved = max(own, key=own.__getitem__), self._unmoved.get(tid)
        same_for_s = self._latest.t - unmoved[1] if unmoved else 0.0
        return LatestStack(best, own[best] / sum(own.values()), same_for_s, self._latest.begin_s)

    def _counts(self, tid: int) -> dict[StackNode, int]:
        return self._latest.counts.get(tid, {}) if self._latest is not None else {}


class RangeJoin:
    """Finds the ranges of one process in which a stack lies, by their places."""

    def __init__(self) -> None:
        self._places: dict[str, list[RangePlace]] = {}  # by path, outer ones before those inside them
        self.number = 0  # of places

    def add_places(self, places: Iterable[RangePlace]) -> None:
        for place in places:
            if has_room(self._places, place.path):
                known = self._places.setdefault(place.path, [])
                if place not in known and has_room(known, place):
                    known.append(place)
                    self.number += 1
        self._places = dict(sorted(self._places.items()))

    def ranges_of(self, stack: Sequence[Frame]) -> tuple[str, ...]:
        """Paths of the ranges that a stack (root first) was sampled in, outer ones first.

        A range holds a stack if one of its frames lies within the range's place, inside the innermost known range
        around it.
        """
        depths: dict[str, int] = {"": 0}  # path: the first frame within it
        for path, places in self._places.items():
            outer = path.rpartition("/")[0]
            while outer and outer not in self._places:
                outer = outer.rpartition("/")[0]
            for depth in range(depths.get(outer, len(stack)), len(stack)):
                at = stack[depth]
                if any(
                    at.function == p.function and p.first <= at.line <= p.last and p.file.endswith(at.file)
                    for p in places
                ):
                    depths[path] = depth
                    break
        return tuple(depths)[1:]
