"""What shows where a loop trains and evaluates, for times in which no sample does: remembered, or from the hooks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal, get_args

from tuimon.records import LoopStack
from tuimon.session.loop_tree.frame_table import FrameTable
from tuimon.session.loop_tree.order import CountedStack

_Kept = Literal["forward", "backward"]
#: Most stacks that are remembered of each: a training shows some tens.
_STACKS = 64


class SeenBoundaries:
    """The latest stacks of one thread in its forward pass and in backward.

    A pass that takes a thousandth of a step is in few samples, and in none of many a window; the lines of the loop are
    the same all the while. Until a sample has shown backward, or an update, the stack counts that the hooks noted.
    """

    def __init__(self) -> None:
        self._stacks: dict[_Kept, dict[tuple[int, ...], CountedStack]] = {kept: {} for kept in get_args(_Kept)}
        self._noted: list[CountedStack] = []
        self._evaluating: set[tuple[int, ...]] = set()

    def add_noted(self, stacks: Sequence[LoopStack]) -> None:
        """Take up what the hooks noted of the loop, in place of what they noted before."""
        self._noted = [CountedStack(tuple(stack.frames), 1, stack.boundary) for stack in stacks]

    @property
    def noted(self) -> Sequence[CountedStack]:
        """What the hooks noted of the loop."""
        return self._noted

    def calling_backward(self, frames: FrameTable) -> set[tuple[str, str]]:
        """The user's functions that call backward or the update, as file and name."""
        kept = (
            stack.stack for stacks in self._stacks.values() for stack in stacks.values() if stack.boundary != "forward"
        )
        found = set()
        for stack in (*kept, *(noted.stack for noted in self._noted)):
            called = takewhile(lambda number: frames.kind(number) not in ("backward", "optimizer"), stack)
            users = [frames[number] for number in called if frames[number].user]
            found |= {(frame.file, frame.function) for frame in users[-1:]}
        return found

    def completed_evaluating(self, places: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
        """These places at which a library's loop evaluates (its lines, outer ones first), and those of before."""
        if len(self._evaluating | places) <= _STACKS:
            self._evaluating |= places
        return self._evaluating

    def completed(self, samples: Sequence[CountedStack]) -> list[CountedStack]:
        """These samples, and the remembered stacks of each boundary that none of them shows."""
        out = list(samples)
        for kept, stacks in self._stacks.items():
            shown = [sample for sample in samples if sample.boundary == kept]
            out += [] if shown else stacks.values()
            for sample in shown[:_STACKS]:
                stacks.pop(sample.stack, None)
                stacks[sample.stack] = sample
            for stack in list(stacks)[:-_STACKS]:
                del stacks[stack]
        shown_boundaries = {sample.boundary for sample in out}
        return out + [stack for stack in self._noted if stack.boundary not in shown_boundaries]
