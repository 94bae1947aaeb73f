"""Where the steps of a process begin, and which thread makes them, as samples alone show."""

from __future__ import annotations

from tuimon.records import StackCount, Stacks
from tuimon.session.loop_tree.frame_table import FrameTable
from tuimon.session.loop_tree.stacks import UPDATES, StackSample

#: Passes through backward between the beginnings of which one whole step lies.
_WHOLE_STEP = 2


class UnmarkedSteps:
    """They begin with the first window in which a thread is in backward, or in an update."""

    def __init__(self, frames: FrameTable) -> None:
        self._frames = frames
        self.have_begun = False
        self._cycles: int | None = 0  # passes through backward that samples have counted; None: too fast to count

    @property
    def has_whole_step(self) -> bool:
        """True if samples have shown a whole step: what they show before that belongs to the set-up."""
        return self.have_begun and (self._cycles is None or self._cycles >= _WHOLE_STEP)

    def add_window(self, record: Stacks, known: int) -> int | None:
        """Fold a window; the thread that trains in it, the ``known`` one before others; None where none does."""
        tids = {stack.tid for stack in record.stacks if self._trains(stack, known)}
        tid = known if known in tids else None if self.have_begun else min(tids, default=None)
        if tid is not None:
            self.have_begun = True
            if self._cycles is not None:
                self._cycles = None if record.cycles is None else self._cycles + record.cycles
        return tid

    def _trains(self, stack: StackCount, known: int) -> bool:
        sample = StackSample.unplaced(self._frames.stack(stack.frames), stack.count)
        if sample.phase not in UPDATES:
            return False
        # a thread of autograd's own may run the user's code in backward, but is not called by it
        return stack.tid == known or any(frame.user for frame in sample.before("backward", "optimizer"))
