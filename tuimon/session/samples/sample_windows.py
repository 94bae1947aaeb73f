"""Windows of stack samples: the latest, apart by whether their step has ended, and a bounded number of a whole run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from msgspec import structs

from tuimon.records import StackCount, Stacks
from tuimon.session.windows import WINDOW_S, Span, Window

#: Most windows that are held of either kind.
_LIMIT = 120
#: From so long on, in seconds, a step under way is apart; markers may come a window later than samples.
_LONG_S = 2.0
#: Without markers also from so many times the longest stretch on that samples of the loop have left out before.
_UNUSUAL = 2.0
#: ... and if so many samples of the loop were expected meanwhile: at least one comes in 95 of 100 cases then (Poisson).
_EXPECTED = 3
#: Most windows of a process that are added up, and most of the latest, which stay as they are.
_WINDOWS = 32
#: Most stacks of a window, the most frequent: a training shows some hundreds, of about six frames each.
_STACKS = 128
#: Most stacks whose lists of frames the windows share.
_SHARED = 1024


class LoopWindow:
    """Windows of the last 30 s of steps, and those of a step that has been under way for long.

    Phases are of steps that have ended. Were samples of an evaluation at the end of a run counted with them, a line of
    it would explain what it has no part in. Without markers the loop goes on as long as windows show it: training has
    bursts, so a stretch without any of it is apart only where it is much longer than those before. Rollouts of 12 s, of
    which each ends in updates, all count; an analysis of 30 s after the last update does not. A loop that shows in one
    of a hundred samples has not paused if sixty show none of it.
    """

    def __init__(self) -> None:
        self._ended: Window[Stacks] = Window(WINDOW_S, limit=_LIMIT)
        self._since: Window[Stacks] = Window(WINDOW_S, limit=_LIMIT)
        self._until_s = math.inf  # when the last step ended, once one has
        #: When the loop came to its latest boundary, where markers show that it stands since then.
        self.boundary_s = math.inf
        self._longest_s = 0.0  # between windows that show the loop, where only samples do
        self._sampled = self._shown = self._sampled_since = 0  # until its last window, there of the loop, since then

    def append(self, record: Stacks) -> None:
        """Append a window."""
        (self._ended if _begin_s(record) < self._until_s else self._since).append(record)

    def end_steps(self, t: float) -> None:
        """Markers show that steps, or an evaluation within one, have ended at this moment."""
        self._longest_s, self._sampled = 0.0, 0
        self._end(t)

    def add_unmarked(self, record: Stacks, sampled: int, shown: int) -> None:
        """A window of a process without markers, in which so many of its training thread's samples show the loop."""
        self._sampled_since += sampled
        if not shown:
            return
        self._sampled, self._shown, self._sampled_since = self._sampled + self._sampled_since, self._shown + shown, 0
        if self._until_s < math.inf:
            self._longest_s = max(self._longest_s, _begin_s(record) - self._until_s)
        self._end(record.t)

    def _end(self, t: float) -> None:
        self._until_s = t if self._until_s == math.inf else max(self._until_s, t)
        ended = [record for record in self._since.records if _begin_s(record) < t]
        for record in ended:
            self._ended.append(record)
        del self._since.records[: len(ended)]

    def keep(self, is_kept: Callable[[Stacks], bool]) -> None:
        """Drop all other windows."""
        for window in (self._ended, self._since):
            window.records[:] = [record for record in window.records if is_kept(record)]

    @property
    def step_is_long(self) -> bool:
        """True if the step under way has been so for long."""
        since = self._since.records
        if not since or self._shown * self._sampled_since < _EXPECTED * self._sampled:
            return False
        return _begin_s(since[-1]) - self._until_s >= max(_LONG_S, _UNUSUAL * self._longest_s)

    @property
    def end_s(self) -> float:
        """When the steps have ended, if the one under way is long; else infinite.

        That of a window in which a step ended and the loop then stands still is the moment since which it does.
        """
        return min(self._until_s, self.boundary_s) if self.step_is_long else math.inf

    def of_steps(self) -> list[Stacks]:
        """The windows of steps that have ended, and of one under way that is not long."""
        if not self.step_is_long:
            return self.latest()
        ended = self._ended.records
        return [record for record in ended if middle_s(record) < self.boundary_s] or [*ended]

    def latest(self) -> list[Stacks]:
        """The windows of the last 30 s, whatever they show."""
        records = [*self._ended.records, *self._since.records]
        return [record for record in records if record.t >= records[-1].t - WINDOW_S]


def middle_s(record: Stacks) -> float:
    """The middle of a window: most of its samples are before a later moment."""
    return record.t - record.window_s / 2


def _begin_s(record: Stacks) -> float:
    return record.t - record.window_s


class RunSamples:
    """The windows of one process: the latest ``limit`` as they are, and at most as many that hold all before.

    When there are more, the two neighbours become one that are the shortest together. So of ten windows of a second
    each, with a limit of 4, there are two of two seconds, two of one, and the latest four.
    """

    def __init__(self, limit: int = _WINDOWS) -> None:
        self._limit = limit
        self._older: list[Stacks] = []
        self._latest: list[Stacks] = []
        self._shared: dict[tuple[int, ...], list[int]] = {}  # frames of a stack: the list of all windows

    def append(self, record: Stacks) -> None:
        """Add a window."""
        self._latest.append(record)
        if len(self._latest) > self._limit:
            self._age(self._latest.pop(0))

    def keep(self, is_kept: Callable[[Stacks], bool]) -> None:
        """Drop all other windows."""
        self._older = [record for record in self._older if is_kept(record)]
        self._latest = [record for record in self._latest if is_kept(record)]

    def between(self, span: Span) -> list[Stacks]:
        """The records that begin in a span, and most of each is in it; one that is a sum must end in it too."""
        older = [record for record in self._older if span.holds(record) and record.t <= span.end_s]
        latest = (record for record in self._latest if middle_s(record) < span.end_s)
        return [*older, *(record for record in latest if span.holds(record))]

    def _age(self, record: Stacks) -> None:
        self._older.append(record)
        if len(self._older) > self._limit:
            shortest = min(range(self._limit), key=lambda n: self._older[n].window_s + self._older[n + 1].window_s)
            self._older[shortest : shortest + 2] = [self._added(*self._older[shortest : shortest + 2])]

    def _added(self, before: Stacks, record: Stacks) -> Stacks:
        """Two windows as one, which lasts from the beginning of the first to the end of the second."""
        counts: Counter[tuple[int, str, tuple[int, ...]]] = Counter()
        for stack in (*before.stacks, *record.stacks):
            counts[stack.tid, stack.thread, tuple(stack.frames)] += stack.count
        if len(self._shared) > _SHARED:
            self._shared.clear()
        stacks = [
            StackCount(tid, thread, self._shared.setdefault(frames, list(frames)), n)
            for (tid, thread, frames), n in counts.most_common(_STACKS)
        ]
        window_s = record.t - (before.t - before.window_s)
        return structs.replace(record, window_s=window_s, samples=before.samples + record.samples, stacks=stacks)
