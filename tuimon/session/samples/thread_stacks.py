"""The threads of one process in its latest window: their names, where each was, and since when it has not moved."""

from __future__ import annotations

import math
from operator import attrgetter

from tuimon.records import Place, StackCount, Stacks
from tuimon.session.loop_tree.frame_table import FrameTable
from tuimon.session.loop_tree.stacks import UPDATES, StackSample, place_of

#: How many thread names are held, the latest ones.
_NAMES_LIMIT = 1024
#: Phases between two boundaries that stacks show as well; only such stacks are of UPDATES.
_MARKED = UPDATES | {"data"}


class ThreadStacks:
    """The stacks of each of a process's Python threads in its latest window."""

    def __init__(self, frames: FrameTable) -> None:
        self._frames = frames
        self._names: dict[int, str] = {}
        self._latest: Stacks | None = None
        self._begin_s = -math.inf  # of the steps
        self._unmoved: dict[int, tuple[tuple[int, ...], float]] = {}  # tid: its one stack, since when

    def add_names(self, record: Stacks) -> None:
        """Add the names of the threads in a record, also of those that are parked."""
        for tid, name in (*((stack.tid, stack.thread) for stack in record.stacks), *record.parked):
            self._names.pop(tid, None)
            self._names[tid] = name
        while len(self._names) > _NAMES_LIMIT:
            del self._names[next(iter(self._names))]

    def add_window(self, record: Stacks) -> None:
        """Make a window with samples the latest one."""
        self._latest = record
        seen: dict[int, set[tuple[int, ...]]] = {}
        for stack in record.stacks:
            seen.setdefault(stack.tid, set()).add(tuple(stack.frames))
        unmoved = {}
        for tid, stacks in seen.items():
            if len(stacks) == 1:
                (only,) = stacks
                before = self._unmoved.get(tid)
                unmoved[tid] = before if before and before[0] == only else (only, record.t - record.window_s)
        self._unmoved = unmoved

    def leave_out_before(self, t: float) -> None:
        """A window that began before a moment shows where threads were when the program was set up."""
        self._begin_s = t

    def name_of(self, tid: int) -> str | None:
        """Python's name of a thread; None for native threads, and before any sample."""
        return self._names.get(tid)

    def place_of(self, tid: int) -> Place | None:
        """As ``place_in``, in whatever phase; None for a window that began before the steps."""
        return self.place_in(tid, None, self._begin_s)

    def place_in(self, tid: int, phase: str | None, since_s: float) -> Place | None:
        """The place where a thread was most often in the latest window while in the phase that markers show now.

        None where no stack of the window may be of that phase, or the window began before ``since_s``.
        """
        if self._latest is None or self._latest.t - self._latest.window_s < since_s:
            return None
        own = [stack for stack in self._stacks_of(tid) if phase is None or self._may_be_in(phase, stack)]
        return place_of(self._frames.stack(max(own, key=attrgetter("count")).frames)) if own else None

    def _may_be_in(self, phase: str, stack: StackCount) -> bool:
        shown = StackSample.unplaced(self._frames.stack(stack.frames), stack.count).phase
        return shown == phase or not (shown in _MARKED or phase in UPDATES)

    def stack_of(self, tid: int) -> tuple[list[int], float] | None:
        """A thread's most frequent stack (frame ids, root first) of the latest window, and its share of it (0..1)."""
        own = self._stacks_of(tid)
        if not own:
            return None
        best = max(own, key=attrgetter("count"))
        return best.frames, best.count / sum(stack.count for stack in own)

    def same_stack_s(self, tid: int) -> float | None:
        """How long all samples of a thread have been of one stack; None where the latest window has none of it."""
        if self._latest is None or not self._stacks_of(tid):
            return None
        unmoved = self._unmoved.get(tid)
        return self._latest.t - unmoved[1] if unmoved else 0.0

    def is_still(self, tid: int, since_s: float) -> bool | None:
        """True if a thread has shown one stack since then; None while no window has begun since, or without samples."""
        if self._latest is None or not self._stacks_of(tid) or self._latest.t - self._latest.window_s < since_s:
            return None
        return tid in self._unmoved

    def _stacks_of(self, tid: int) -> list[StackCount]:
        return [stack for stack in self._latest.stacks if stack.tid == tid] if self._latest is not None else []
