"""Windows of a process's samples, as counts of nodes: of the last 30 s, of the last 30 s of its steps, of a run."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from tuimon.records import Stacks, Steps
from tuimon.session.series import WINDOW_S, Span
from tuimon.session.stacks.trie import Node, Trie

#: Which windows: ``steps``: those of the last 30 s of steps, without a step under way that is long; ``now``: those of
#: the last 30 s, whatever they show; or those of a stretch of the run.
Over = Span | Literal["steps", "now"]

#: Most windows that are held of the last 30 s, of ended steps and of the one under way each.
_LIMIT = 120
#: From so long on, in seconds, a step under way is apart; markers may come a window later than samples.
_LONG_S = 2.0
#: Without markers also from so many times the longest stretch on that samples of the loop have left out before.
_UNUSUAL = 2.0
#: ... and if so many samples of the loop were expected meanwhile: at least one comes in 95 of 100 cases then (Poisson).
_EXPECTED = 3
#: Most windows of a run that are added up, and most of the latest, which stay as they are.
_WINDOWS = 32
#: Most stacks of windows that are added up, the most frequent: a training shows some hundreds.
_STACKS = 128
#: Times of records are rounded.
_TOLERANCE_S = 0.01


class Window(Struct, frozen=True, dict=True):
    """How often each thread was sampled in each stack."""

    t: float  # its end
    window_s: float
    counts: dict[int, dict[Node, int]]  # by thread

    @classmethod
    def of(cls, record: Stacks, trie: Trie) -> Window:
        """The window of a record."""
        counts: dict[int, dict[Node, int]] = {}
        for stack in record.stacks:
            own, node = counts.setdefault(stack.tid, {}), trie.node(stack.frames)
            own[node] = own.get(node, 0) + stack.count
        return cls(record.t, record.window_s, counts)

    @cached_property
    def passes(self) -> dict[int, dict[Node, int]]:
        """Its stacks in a forward pass, or in backward, by thread."""
        return {
            tid: {node: n for node, n in counts.items() if node.boundary in ("forward", "backward")}
            for tid, counts in self.counts.items()
        }

    @property
    def begin_s(self) -> float:
        """Its beginning."""
        return self.t - self.window_s

    @property
    def middle_s(self) -> float:
        """Its middle: most of its samples are before a later moment."""
        return self.t - self.window_s / 2

    def joined(self, following: Window) -> Window:
        """Two windows as one, from the beginning of this one to the end of the other; of the most frequent stacks."""
        sums: Counter[tuple[int, Node]] = Counter()
        for tid, nodes in (*self.counts.items(), *following.counts.items()):
            for node, n in nodes.items():
                sums[tid, node] += n
        counts: dict[int, dict[Node, int]] = {}
        for (tid, node), n in sums.most_common(_STACKS):
            counts.setdefault(tid, {})[node] = n
        return Window(following.t, following.t - self.begin_s, counts)


def summed(several: Iterable[Mapping[Node, int]]) -> dict[Node, int]:
    """The counts of stacks, added up."""
    sums: dict[Node, int] = {}
    for counts in several:
        for node, n in counts.items():
            sums[node] = sums.get(node, 0) + n
    return sums


class Windows:
    """The windows of one process, since its loop began.

    Phases are of steps that have ended. Were samples of an evaluation at the end of a run counted with them, a line of
    it would explain what it has no part in. Without markers the loop goes on as long as windows show it: training has
    bursts, so a stretch without any of it is apart only where it is much longer than those before. Rollouts of 12 s, of
    which each ends in updates, all count; an analysis of 30 s after the last update does not. A loop that shows in one
    of a hundred samples has not paused if sixty show none of it.

    Of a whole run the latest ``limit`` windows stay as they are, and at most as many hold all before. When there are
    more, the two neighbours become one that are the shortest together: of ten windows of a second each, with a limit of
    4, there are two of two seconds, two of one, and the latest four.
    """

    def __init__(self, limit: int = _WINDOWS) -> None:
        self._limit = limit
        self._older: list[Window] = []
        self._latest: list[Window] = []
        self._recent: list[Window] = []  # of the last 30 s of ended steps, and since then
        self._outside = OutsideTimes()
        self.begin_s = -math.inf  # when the loop began, as far as is known
        self._until_s = math.inf  # when the last step ended, once one has
        #: When the loop came to its latest boundary, where markers show that it stands since then.
        self.boundary_s = math.inf
        self._longest_s = 0.0  # between windows that show the loop, where only samples do
        self._sampled = self._shown = self._sampled_since = 0  # until its last window, there of the loop, since then

    def add(self, window: Window) -> bool:
        """Add a window, unless the program was outside its loop; whether it is of the loop."""
        if self._outside.covers(window):
            return False
        self._latest.append(window)
        if len(self._latest) > self._limit:
            self._older.append(self._latest.pop(0))
        if len(self._older) > self._limit:
            lengths = [before.window_s + after.window_s for before, after in pairwise(self._older)]
            at = lengths.index(min(lengths))
            self._older[at : at + 2] = [self._older[at].joined(self._older[at + 1])]
        if window.begin_s < self.begin_s:
            return False
        self._recent.append(window)
        ended, since = self._ended(), self._since()
        self._recent = [*_of_30_s(ended)[-_LIMIT:], *_of_30_s(since)[-_LIMIT:]]
        return True

    def _ended(self) -> list[Window]:
        return [window for window in self._recent if window.begin_s < self._until_s]

    def _since(self) -> list[Window]:
        return [window for window in self._recent if window.begin_s >= self._until_s]

    def end_steps(self, t: float) -> None:
        """Markers show that steps, or an evaluation within one, have ended at this moment."""
        self._longest_s, self._sampled = 0.0, 0
        self._end(t)

    def add_unmarked(self, window: Window, sampled: int, shown: int) -> None:
        """A window of a process without markers, in which so many of its training thread's samples show the loop."""
        self._sampled_since += sampled
        if not shown:
            return
        self._sampled, self._shown, self._sampled_since = self._sampled + self._sampled_since, self._shown + shown, 0
        if self._until_s < math.inf:
            self._longest_s = max(self._longest_s, window.begin_s - self._until_s)
        self._end(window.t)

    def _end(self, t: float) -> None:
        self._until_s = t if self._until_s == math.inf else max(self._until_s, t)

    def leave_out_before(self, t: float) -> None:
        """Leave out what began before a moment."""
        self.begin_s = t
        self._keep(lambda window: window.begin_s >= t)

    def leave_out_outside(self, record: Steps) -> None:
        """Leave out the time in which the program was outside its loop, as far as a window of steps says so."""
        self._outside.add_window(record)
        begin_s = record.t - record.window_s
        self._keep(lambda window: window.t <= begin_s or not self._outside.covers(window))

    def _keep(self, is_kept: Callable[[Window], bool]) -> None:
        self._older, self._latest, self._recent = (
            [window for window in windows if is_kept(window)] for windows in (self._older, self._latest, self._recent)
        )

    @property
    def step_is_long(self) -> bool:
        """True if the step under way has been so for long."""
        since = self._since()
        if not since or self._shown * self._sampled_since < _EXPECTED * self._sampled:
            return False
        return since[-1].begin_s - self._until_s >= max(_LONG_S, _UNUSUAL * self._longest_s)

    @property
    def end_s(self) -> float:
        """When the steps have ended, if the one under way is long; else infinite.

        That of a window in which a step ended and the loop then stands still is the moment since which it does.
        """
        return min(self._until_s, self.boundary_s) if self.step_is_long else math.inf

    def over(self, over: Over) -> list[Window]:
        """The windows that begin in a span, and most of each is in it; one that is a sum must end in it too."""
        if over == "steps" and self.step_is_long:
            ended = self._ended()
            return [window for window in ended if window.middle_s < self.boundary_s] or ended
        if not isinstance(over, Span):
            return _of_30_s(self._recent)
        begin_s, end_s = max(over.begin_s, self.begin_s), min(over.end_s, self.end_s)
        older = [window for window in self._older if window.t <= end_s]
        latest = [window for window in self._latest if window.middle_s < end_s]
        return [window for window in (*older, *latest) if begin_s <= window.begin_s < end_s]


def _of_30_s(windows: list[Window]) -> list[Window]:
    return [window for window in windows if window.t >= windows[-1].t - WINDOW_S]


class OutsideTimes:
    """Windows of steps in which a program was outside its loop, for some of the time or for all of it."""

    def __init__(self) -> None:
        self._parts: deque[tuple[Span, float]] = deque(maxlen=64)  # with the share (0..1) outside

    def add_window(self, record: Steps) -> None:
        """Add a window with ``outside_s``; those that follow one another and are all outside are one."""
        span = Span(record.t - record.window_s, record.t)
        ratio = min(1.0, (record.outside_s or 0.0) / record.window_s) if record.window_s else 0.0
        before, its_ratio = self._parts[-1] if self._parts else (span, 0.0)
        if min(ratio, its_ratio) >= 1.0 and before.end_s >= span.begin_s - _TOLERANCE_S:
            self._parts.pop()
            span = span._replace(begin_s=before.begin_s)
        self._parts.append((span, ratio))

    def covers(self, window: Window) -> bool:
        """True if the program was outside for at least half of a window of samples, as if that were spread evenly."""
        outside_s = sum(
            max(0.0, min(window.t, span.end_s) - max(window.begin_s, span.begin_s)) * ratio
            for span, ratio in self._parts
        )
        return outside_s > 0 and outside_s >= window.window_s / 2
