"""The path by which a library that owns the loop comes to backward, and where stacks leave it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuimon.session.samples.frame_table import FrameTable
from tuimon.session.samples.phases.loop_path import CountedStack

#: Lines of the library's functions from the outermost on, and the line at which a stack leaves them.
Lines = tuple[int, ...]


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
        """Whether a stack that leaves the path there lacks frames: at this line the path goes on in the library."""
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
        """Whether a frame is the user's and at another line than the one that leads to backward."""
        frame = self._frames[number]
        return frame.user and self._user_lines.get(self._frames.function(number)) != frame.line

    def _to_backward(self, samples: Sequence[CountedStack]) -> Sequence[int]:
        """The frames down to backward of the most frequent stack in it."""
        inside = [sample for sample in samples if sample.boundary == "backward"]
        stack = max(inside, key=lambda sample: sample.times).stack if inside else ()
        return stack[: next((i for i, n in enumerate(stack) if self._frames.kind(n) == "backward"), len(stack))]


def is_before(place: Lines, other: Lines) -> bool:
    """Whether the loop comes to a place before another; not where one is within the other."""
    return next((line < of_other for line, of_other in zip(place, other, strict=False) if line != of_other), False)
