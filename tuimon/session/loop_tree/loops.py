"""The loops of a program that trains in several functions: each sample is divided by the lines of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.session.loop_tree.evaluation_lines import Branch
from tuimon.session.loop_tree.loop_lines import LoopLines
from tuimon.session.loop_tree.order import returned_gradients
from tuimon.session.loop_tree.stacks import Stack, StackSample

#: Loops that are distinguished: of a GAN two, of a program that trains in stages a few.
_MOST = 4
#: Samples in backward that show another loop: a single one may have been read while the stack changed.
_ENOUGH = 2


class InLoop(NamedTuple):
    """Where a stack is in its loop."""

    loop: LoopLines
    branch: Branch | None
    outline: Stack


class Loops:
    """The loop with most samples in backward, and others whose backward calls are in functions that it never enters.

    Such as ``pretrain()`` and ``finetune()``, or the functions of a GAN that train one model each.
    """

    def __init__(self, samples: Sequence[StackSample], has_loader: bool = False) -> None:
        """``samples``: outlines; ``has_loader``: whether markers show a DataLoader."""
        self.main = LoopLines(samples, has_loader)
        self._loops = [self.main]
        returned = returned_gradients(samples)
        left = [sample for sample in samples if sample.phase == "backward" and sample.frames not in returned]
        while len(self._loops) < _MOST and (left := self._elsewhere(left)):
            most = max(left, key=lambda sample: sample.count)
            other = LoopLines([most], has_loader)
            own = [sample for sample in samples if other.depth_of(sample.frames) > self._depth_of(sample.frames)]
            if sum(sample.count for sample in own if sample.phase == "backward") < _ENOUGH:
                left.remove(most)
            else:
                self._loops.append(LoopLines(own, has_loader))

    def place(self, sample: StackSample) -> InLoop:
        """The loop that a sample shares most functions with, of several the one with most samples, and where it is."""
        loop = self.main
        if len(self._loops) > 1:
            loop = max(self._loops, key=lambda loop: loop.depth_of(sample.outline))
        outline = loop.aligned(sample.outline)
        return InLoop(loop, loop.branch_of(outline), outline)

    def _depth_of(self, stack: Stack) -> int:
        return max(loop.depth_of(stack) for loop in self._loops)

    def _elsewhere(self, samples: Sequence[StackSample]) -> list[StackSample]:
        """The samples that are not in the innermost function of any loop."""
        return [sample for sample in samples if not any(loop.is_entered_by(sample.frames) for loop in self._loops)]
