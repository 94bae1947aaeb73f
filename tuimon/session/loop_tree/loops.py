"""The loops of a program that trains in several functions: each sample is divided by the lines of its own."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.session.loop_tree.frame_table import FrameTable
from tuimon.session.loop_tree.loop_lines import LoopLines
from tuimon.session.loop_tree.order import CountedStack, returned_gradients

#: Loops that are distinguished: of a GAN two, of a program that trains in stages a few.
_MOST = 4
#: Samples in backward that show another loop: a single one may have been read while the stack changed.
_ENOUGH = 2


class Loops:
    """The loop with most samples in backward, and others whose backward calls are in functions that it never enters.

    Such as ``pretrain()`` and ``finetune()``, or the functions of a GAN that train one model each.
    """

    def __init__(self, samples: Sequence[CountedStack], frames: FrameTable, has_loader: bool = False) -> None:
        """``samples``: outlines; ``has_loader``: whether markers show a DataLoader."""
        self.main = LoopLines(samples, frames, has_loader)
        self._loops = [self.main]
        updates = {sample.stack for sample in samples if sample.boundary in ("backward", "optimizer")}
        returned = returned_gradients(updates, frames)
        left = [sample for sample in samples if sample.boundary == "backward" and sample.stack not in returned]
        while len(self._loops) < _MOST and (left := self._elsewhere(left)):
            most = max(left, key=lambda sample: sample.times)
            other = LoopLines([most], frames, has_loader)
            own = [sample for sample in samples if other.depth_of(sample.stack) > self._depth_of(sample.stack)]
            if sum(sample.times for sample in own if sample.boundary == "backward") < _ENOUGH:
                left.remove(most)
            else:
                self._loops.append(LoopLines(own, frames, has_loader))

    def of(self, stack: Sequence[int]) -> LoopLines:
        """The loop that a stack (an outline) shares most functions with; of several the one with most samples."""
        if len(self._loops) == 1:
            return self.main
        return max(self._loops, key=lambda loop: loop.depth_of(stack))

    def _depth_of(self, stack: Sequence[int]) -> int:
        return max(loop.depth_of(stack) for loop in self._loops)

    def _elsewhere(self, samples: Sequence[CountedStack]) -> list[CountedStack]:
        """The samples that are not in the innermost function of any loop."""
        return [sample for sample in samples if not any(loop.is_entered_by(sample.stack) for loop in self._loops)]
