"""Evidence of where a loop trains, evaluates and makes its data while no sample shows it: remembered, or by hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from tuimon.records import LoopStack
from tuimon.session.loop_tree.frame_table import FrameTable, Function
from tuimon.session.loop_tree.order import to_user
from tuimon.session.loop_tree.stacks import Stack, StackSample

_Kept = Literal["forward", "backward"]
#: Most stacks that are remembered of each: a training shows some tens.
_STACKS = 64


class SeenBoundaries:
    """The latest stacks of one thread in its forward pass and in backward.

    A pass that takes a thousandth of a step is in few samples, and in none of many a window; the lines of the loop are
    the same all the while. Until a sample has shown backward, or an update, the stack counts that the hooks noted.
    """

    def __init__(self) -> None:
        self._stacks: dict[_Kept, dict[Stack, StackSample]] = {kept: {} for kept in get_args(_Kept)}
        self.noted: list[StackSample] = []  # what the hooks noted of the loop

    def add_noted(self, stacks: Sequence[LoopStack], frames: FrameTable) -> None:
        """Take up what the hooks noted of the loop, in place of what they noted before."""
        self.noted = [StackSample(frames.stack(stack.frames), 1, stack.boundary) for stack in stacks]

    def calling_backward(self) -> set[Function]:
        """The user's functions that call backward or the update, as file and name."""
        kept = (sample for stacks in self._stacks.values() for sample in stacks.values() if sample.phase != "forward")
        callers = (to_user(sample.before("backward", "optimizer")) for sample in (*kept, *self.noted))
        return {caller[-1].code for caller in callers if caller}

    def completed(self, samples: Sequence[StackSample]) -> list[StackSample]:
        """These samples, and the remembered stacks of each boundary that none of them shows."""
        out = list(samples)
        for kept, stacks in self._stacks.items():
            out += _kept_instead([sample for sample in samples if sample.phase == kept], stacks)
        shown_boundaries = {sample.phase for sample in out}
        return out + [sample for sample in self.noted if sample.phase not in shown_boundaries]


def _kept_instead(shown: Sequence[StackSample], kept: dict[Stack, StackSample]) -> list[StackSample]:
    """The stacks that are kept if none is shown; those shown are kept from now on."""
    instead = [] if shown else list(kept.values())
    for sample in shown[:_STACKS]:
        kept.pop(sample.frames, None)
        kept[sample.frames] = sample
    for stack in list(kept)[:-_STACKS]:
        del kept[stack]
    return instead
