"""The path to backward: the frames from the root to the user's line that leads to it, or to the update.

If a library owns the loop, the path goes through its functions, and stacks leave it there. Backward passes that only
return gradients, such as forces, are on no path: training takes them, and so may an evaluation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from typing import Literal, NamedTuple

from tuimon.session.loop_tree.frame_table import FrameTable
from tuimon.session.loop_tree.stack_phase import StackPhase

#: Where gradients are made or used.
UPDATES: frozenset[StackPhase] = frozenset({"backward", "optimizer"})
_Stack = tuple[int, ...]
#: Lines of the library's functions from the outermost on, and the line at which a stack leaves them.
Lines = tuple[int, ...]


class CountedStack(NamedTuple):
    """A stack (frame ids, root first), how often it was sampled, and the innermost boundary that it is in."""

    stack: tuple[int, ...]
    times: int
    boundary: StackPhase


def path_to(
    kind: Literal["backward", "optimizer"], samples: Sequence[CountedStack], frames: FrameTable
) -> Sequence[int]:
    """Frames from the root to the user's line that most stacks in backward, or in the update, come through.

    Of few, one that was read while it changed may be as frequent: the forward pass has no such callers.
    """
    paths: Counter[tuple[int, ...]] = Counter()
    returned = returned_gradients({s.stack for s in samples if s.boundary in UPDATES}, frames)
    for sample in samples:
        if sample.boundary == kind and sample.stack not in returned:
            paths[_to_user_line(sample.stack, kind, frames)] += sample.times
    if not paths:
        return ()
    most = paths.most_common(1)[0][1]
    first, *others = (path for path, times in paths.items() if times == most)
    likeliest = _forward_beside(first, samples) if others else 0
    for path in others:
        if (beside := _forward_beside(path, samples)) > likeliest:
            first, likeliest = path, beside
    return first


def _to_user_line(
    stack: tuple[int, ...], kind: Literal["backward", "optimizer"], frames: FrameTable
) -> tuple[int, ...]:
    boundary = next((i for i, n in enumerate(stack) if frames.kind(n) == kind), len(stack))
    while boundary and not frames[stack[boundary - 1]].user:
        boundary -= 1
    return stack[:boundary]


def _forward_beside(path: tuple[int, ...], samples: Sequence[CountedStack]) -> int:
    """How many samples of the forward pass have all callers of a path."""
    return sum(s.times for s in samples if s.boundary == "forward" and s.stack[: len(path) - 1] == path[:-1])


def returned_gradients(updates: Set[_Stack], frames: FrameTable) -> set[_Stack]:
    """Which of the stacks in backward, or in an optimizer's step, are in such a pass; none where they all are.

    Where nothing else trains they are what does.
    """
    found = {stack for stack in updates if frames.returns_gradients(stack)}
    return found if found != updates else set()


class LibraryPath:
    """The frames down to backward, be they noted by the hooks or sampled; without any, no stack leaves them."""

    def __init__(self, samples: Sequence[CountedStack], noted: Sequence[CountedStack], frames: FrameTable) -> None:
        self._frames = frames
        path = self._to_backward(noted) or self._to_backward(samples)
        seen_once = {function for function, n in Counter(map(frames.function, path)).items() if n == 1}
        self.passes_optimizer = any(frames.kind(number) == "optimizer" for number in path)
        self.lines = tuple(frames[number].line for number in path)
        self._user_lines = {frames.function(n): frames[n].line for n in path if frames[n].user}
        #: Of the library's functions.
        self.depth = {
            frames.function(number): depth
            for depth, number in enumerate(path)
            if frames.is_library(number) and frames.function(number) in seen_once
        }

    def leaves_at(self, stack: Sequence[int]) -> Lines:
        """Where a stack leaves the path; nothing where it is elsewhere."""
        left = self._left_by(stack)
        if left is None or any(map(self._is_elsewhere, stack[:left])):
            return ()
        return (*self.lines[: self.depth[self._frames.function(stack[left])]], self._frames[stack[left]].line)

    def is_cut_short(self, place: Lines) -> bool:
        """True if a stack that leaves the path there lacks frames: at this line the path goes on in the library."""
        return len(place) <= max(self.depth.values(), default=0) and place == self.lines[: len(place)]

    def inside(self, stack: Sequence[int]) -> Sequence[int]:
        """What the innermost function on the path calls."""
        left = self._left_by(stack)
        return stack[left + 1 :] if left is not None else ()

    def _left_by(self, stack: Sequence[int]) -> int | None:
        """The frame at which a stack leaves the path: the first of a library at another line, else the last on it."""
        left = None
        for i, number in enumerate(stack):
            depth = self.depth.get(self._frames.function(number)) if self._frames.is_library(number) else None
            if depth is not None:
                left = i
                if self._frames[number].line != self.lines[depth]:
                    break
        return left

    def _is_elsewhere(self, number: int) -> bool:
        """True if a frame is the user's and at another line than the one that leads to backward."""
        frame = self._frames[number]
        return frame.user and self._user_lines.get(self._frames.function(number)) != frame.line

    def _to_backward(self, samples: Sequence[CountedStack]) -> Sequence[int]:
        """The frames down to backward of the most frequent stack in it."""
        inside = [sample for sample in samples if sample.boundary == "backward"]
        stack = max(inside, key=lambda sample: sample.times).stack if inside else ()
        return stack[: next((i for i, n in enumerate(stack) if self._frames.kind(n) == "backward"), len(stack))]


def is_before(place: Lines, other: Lines) -> bool:
    """True if the loop comes to a place before another; not where one is within the other."""
    return next((line < of_other for line, of_other in zip(place, other, strict=False) if line != of_other), False)
