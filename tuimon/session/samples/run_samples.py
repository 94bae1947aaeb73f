"""Stack samples of a whole run in a bounded number of windows: neighbours are added up, so that every sample counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import structs

from tuimon.records import StackCount, Stacks
from tuimon.session.samples.loop_window import middle_s
from tuimon.session.windows import Span

#: Most windows of a process that are added up, and most of the latest, which stay as they are.
_WINDOWS = 32
#: Most stacks of a window, the most frequent: a training shows some hundreds, of about six frames each.
_STACKS = 128
#: Most stacks whose lists of frames the windows share.
_SHARED = 1024


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

    def __len__(self) -> int:
        return len(self._older) + len(self._latest)

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
