"""The functions of a training loop, called from more than one line: all their stacks as if from the usual one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from tuimon.session.loop_tree.frame_table import FrameTable

#: As for the lines of a loop: of so many samples more than one is in an update where a line leads to it.
_MANY = 30


class _Entry(Struct, frozen=True, gc=False):
    """Where a stack that has left the path enters a function of the path again."""

    at: int  # index in the stack
    depth: int  # index in the path


class OtherCalls:
    """Finds the stacks in which a function of the path to the backward call is called from another line than there.

    Such as ``train(second)`` below ``train(first)``, or ``train`` by another function: where those calls lead to
    backward too, the frames from that function on are the loop's, and the frames of the path stand before them.
    """

    def __init__(
        self,
        path: Sequence[int],
        samples: Sequence[tuple[Sequence[int], int, bool]],
        frames: FrameTable,
    ) -> None:
        """``path``: frame ids to the user's line that calls backward; ``samples``: stack, times, is it in an update."""
        self._path = path
        self._frames = frames
        self._functions = {frames.function(number): depth for depth, number in reversed(list(enumerate(path)))}
        updates: Counter[tuple[int, ...]] = Counter()
        for stack, count, is_update in samples:
            entry = self._entry(stack) if is_update else None
            if entry is not None:
                updates[tuple(stack[: entry.at])] += count
        self._callers = frozenset(caller for caller, n in updates.items() if n > 1 or not _is_torn(caller, samples))

    def aligned(self, stack: Sequence[int]) -> Sequence[int]:
        """The stack as if called along the path; as it is where it is on the path, or its call does not train."""
        entry = self._entry(stack) if self._callers else None
        if entry is None or tuple(stack[: entry.at]) not in self._callers:
            return stack
        return [*self._path[: entry.depth], *stack[entry.at :]]

    def _entry(self, stack: Sequence[int]) -> _Entry | None:
        left = next((i for i, pair in enumerate(zip(stack, self._path, strict=False)) if pair[0] != pair[1]), None)
        if left is None:
            return None
        same = self._frames.function(stack[left]) == self._frames.function(self._path[left])
        for at in range(left + same, len(stack)):
            depth = self._functions.get(self._frames.function(stack[at]), -1)
            if depth >= left + same and self._frames[stack[at]].user:
                return _Entry(at, depth)
        return None


def _is_torn(caller: tuple[int, ...], samples: Sequence[tuple[Sequence[int], int, bool]]) -> bool:
    """True if the one sample of an update below a line was read while the stack changed: it is one of many there."""
    return sum(count for stack, count, _ in samples if tuple(stack[: len(caller)]) == caller) >= _MANY
