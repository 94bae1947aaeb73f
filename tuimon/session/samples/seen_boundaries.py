"""Stacks that show where a loop trains, remembered for times in which no sample shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from tuimon.session.samples.loop_lines import CountedStack

_Kept = Literal["forward", "backward"]
#: Most stacks that are remembered of each: a training shows some tens.
_STACKS = 64


class SeenBoundaries:
    """The latest stacks of one thread in its forward pass and in backward.

    A pass that takes a thousandth of a step is in few samples, and in none of many a window; the lines of the loop are
    the same all the while.
    """

    def __init__(self) -> None:
        self._stacks: dict[_Kept, dict[tuple[int, ...], CountedStack]] = {kept: {} for kept in get_args(_Kept)}

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
        return out
