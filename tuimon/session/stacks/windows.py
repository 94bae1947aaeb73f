"""The samples of a process as a ``Series`` of counts by stack, and which spans of it are of its steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from heapq import nsmallest

from msgspec import Struct

from tuimon.records import Stacks, Steps
from tuimon.session.series import Series, Span, Stretch
from tuimon.session.stacks.trie import Node, Trie

#: From so long on, in seconds, a step under way is apart; markers may come a window later than samples.
_LONG_S = 2.0
#: Without markers also from so many times the longest stretch on that samples of the loop have left out before.
_UNUSUAL = 2.0
#: ... and if so many samples of the loop were expected meanwhile: at least one comes in 95 of 100 cases then (Poisson).
_EXPECTED = 3
#: Windows of each length that the series holds: those of the last 30 s as they were recorded, of 2 s each.
_ROWS = 16
#: Most stacks of a thread in windows that are joined; rarer ones count for their callers.
_JOINED = 64
#: Most threads of a process that are held, the latest that were sampled.
_THREADS = 64


class Window(Struct, frozen=True):
    """How often each thread was sampled in each stack."""

    begin_s: float
    t: float  # its end
    counts: dict[int, dict[Node, int]]  # by thread

    @classmethod
    def of(cls, record: Stacks, trie: Trie) -> Window:
        """The window of a record."""
        counts: dict[int, dict[Node, int]] = {}
        for stack in record.stacks:
            own, node = counts.setdefault(stack.tid, {}), trie.node(stack.frames)
            own[node] = own.get(node, 0) + stack.count
        return cls(record.t - record.window_s, record.t, counts)


class _Stacks(Series[Stretch]):
    """Windows of a thread: how often it was sampled in each stack. Rare ones of long ago count for their callers."""

    __slots__ = ()
    begin_inside = True

    def __init__(self) -> None:
        super().__init__(Stretch, _ROWS)

    def shrunk(self, counts: dict[Node, int]) -> dict[Node, int]:
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

    Phases are of steps that have ended. Were samples of an evaluation at the end of a run counted with them, a line of
    it would explain what it has no part in. Without markers the loop goes on as long as windows show it: training has
    bursts, so a stretch without any of it is apart only where it is much longer than those before. Rollouts of 12 s, of
    which each ends in updates, all count; an analysis of 30 s after the last update does not. A loop that shows in one
    of a hundred samples has not paused if sixty show none of it.
    """

    def __init__(self) -> None:
        self._threads: dict[int, _Stacks] = {}  # the latest that were sampled
        self._outside: deque[tuple[Span, float]] = deque(maxlen=64)  # of steps, with the share (0..1) outside the loop
        self.begin_s = -math.inf  # when the loop began, as far as is known
        self._covered: tuple[Span, float] | None = None  # by the latest span, asked for each thread
        self._latest_s = -math.inf  # when the latest window began
        self._until_s = math.inf  # when the last step ended, once one has
        #: When the loop came to its latest boundary, where markers show that it stands since then.
        self.boundary_s = math.inf
        self._longest_s = 0.0  # between windows that show the loop, where only samples do
        self._sampled = self._shown = self._sampled_since = 0  # until its last window, there of the loop, since then

    def add(self, window: Window) -> bool:
        """Add a window, unless the program was outside its loop then; whether it is of the loop."""
        if window.begin_s < self.begin_s or self._is_outside(window.begin_s, window.t):
            return False
        was_long, self._latest_s = self.step_is_long, max(self._latest_s, window.begin_s)
        if self.step_is_long and not was_long:
            for own in self._threads.values():
                own.keep_apart(self.end_s)
        self._covered = None
        for tid, counts in window.counts.items():
            own = self._threads[tid] = self._threads.pop(tid) if tid in self._threads else _Stacks()
            own.append(Stretch(window.begin_s, window.t), counts)
        while len(self._threads) > _THREADS:
            del self._threads[next(iter(self._threads))]
        return True

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
        self._drop(lambda row: row.begin_s < t)

    def leave_out_outside(self, record: Steps) -> None:
        """Leave out the time in which the program was outside its loop, as far as a window of steps says so."""
        begin_s = record.t - record.window_s
        ratio = min(1.0, (record.outside_s or 0.0) / record.window_s) if record.window_s else 0.0
        self._outside.append((Span(begin_s, record.t), ratio))
        self._drop(lambda row: row.end_s > begin_s and self._is_outside(*row))

    def _drop(self, is_dropped: Callable[[Stretch], bool]) -> None:
        self._covered = None
        for own in self._threads.values():
            own.drop(is_dropped)

    def _is_outside(self, begin_s: float, end_s: float) -> bool:
        """True if the program was outside for at least half of a window, as if that were spread evenly."""
        outside_s = sum(
            max(0.0, min(end_s, span.end_s) - max(begin_s, span.begin_s)) * ratio for span, ratio in self._outside
        )
        return outside_s > 0 and outside_s >= (end_s - begin_s) / 2

    @property
    def step_is_long(self) -> bool:
        """True if the step under way has been so for long."""
        if self._shown * self._sampled_since < _EXPECTED * self._sampled:
            return False
        return self._latest_s - self._until_s >= max(_LONG_S, _UNUSUAL * self._longest_s)

    @property
    def end_s(self) -> float:
        """When the steps have ended, if the one under way is long; else infinite.

        That of a window in which a step ended and the loop then stands still is the moment since which it does.
        """
        return min(self._until_s, self.boundary_s) if self.step_is_long else math.inf

    def counts(self, span: Span, tid: int) -> dict[Node, int]:
        """The samples of a thread in a span by stack."""
        return self._threads[tid].counts(span) if tid in self._threads else {}

    def tids(self, span: Span) -> list[int]:
        """The threads with samples in a span."""
        return [tid for tid, own in self._threads.items() if own.over(span) is not None]

    def covered_s(self, span: Span) -> float:
        """From the beginning of the first window of a span to the end of the last."""
        if self._covered is None or self._covered[0] != span:
            rows = [row for own in self._threads.values() if (row := own.over(span)) is not None]
            covered_s = max(row.end_s for row in rows) - min(row.begin_s for row in rows) if rows else 0.0
            self._covered = span, covered_s
        return self._covered[1]
