"""The path to backward: the frames from the root to the user's line that leads to it, or to the update.

If a library owns the loop, the path goes through its functions, and stacks leave it there. Backward passes that only
return gradients, such as forces, are on no path: training takes them, and so may an evaluation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tuimon.session.loop_tree.frame_table import Function
from tuimon.session.loop_tree.stacks import UPDATES, Stack, StackSample

#: Lines of the library's functions from the outermost on, and the line at which a stack leaves them.
Lines = tuple[int, ...]


def path_to(kind: Literal["backward", "optimizer"], samples: Sequence[StackSample]) -> Stack:
    """Frames from the root to the user's line that most stacks in backward, or in the update, come through."""
    paths: Counter[Stack] = Counter()
    for sample in samples:
        if sample.phase == kind:
            paths[to_user(sample.before(kind))] += sample.count
    return max(paths, key=lambda path: paths[path], default=())


def path_to_model(samples: Sequence[StackSample]) -> Stack:
    """Frames from the root to the user's line that most stacks in the forward pass come through.

    One that was read while it changed came from other work, so other stacks come through its line: that counts against
    a line, in proportion.
    """
    paths: Counter[Stack] = Counter()
    for sample in samples:
        if sample.phase == "forward":
            paths[to_user(sample.before("module", "compile"))] += sample.count
    passed = {path: sum(s.count for s in samples if s.frames[: len(path)] == path) for path in paths}
    return max(paths, key=lambda path: paths[path] ** 2 / passed[path], default=())


def to_user(stack: Stack) -> Stack:
    """The frames from the root to the innermost of the user's."""
    return stack[: next((depth for depth in range(len(stack), 0, -1) if stack[depth - 1].user), 0)]


def leading_lines(samples: Sequence[StackSample]) -> dict[Function, set[int]]:
    """The lines with which each function that leads to backward or the update does so."""
    lines: dict[Function, set[int]] = {}
    for sample in samples:
        for frame in sample.before("backward", "optimizer") if sample.phase in UPDATES else ():
            lines.setdefault(frame.code, set()).add(frame.line)
    return lines


def without_returned(samples: Sequence[StackSample]) -> list[StackSample]:
    """The samples, those in passes that only return gradients as of the forward pass; they train if all do."""
    returned = {sample.frames: sample.returns_gradients for sample in samples if sample.phase in UPDATES}
    if all(returned.values()):
        return list(samples)
    return [sample.at("forward") if returned.get(sample.frames) else sample for sample in samples]


#: Among so many samples at a place more than one is in an update, if the place leads to one: our choice. py-spy reads a
#: running process, so a stack may be made of two that followed each other.
MANY = 8


def is_torn(updates: int, others: int) -> bool:
    """True if the one sample of an update at a place was read while the stack changed: so many others show none."""
    return updates == 1 and others >= MANY


def is_before(place: Lines, other: Lines) -> bool:
    """True if the loop comes to a place before another; not where one is within the other."""
    return next((line < of_other for line, of_other in zip(place, other, strict=False) if line != of_other), False)


class Leaving(NamedTuple):
    """The place at which a stack leaves the path; empty for a stack in another call of the user's, or off the path."""

    place: Lines
    inside: Stack  # what the innermost function on the path calls


_NOWHERE = Leaving((), ())


class LibraryPath:
    """The frames down to backward, be they noted by the hooks or sampled; without any, no stack leaves them."""

    def __init__(self, samples: Sequence[StackSample], noted: Sequence[StackSample]) -> None:
        path = _to_backward(noted) or _to_backward(samples)
        times = Counter(frame.code for frame in path)
        self._left: dict[Stack, Leaving] = {}
        self.passes_optimizer = any(frame.kind == "optimizer" for frame in path)
        self.lines = tuple(frame.line for frame in path)
        self._user_lines = {frame.code: frame.line for frame in path if frame.user}
        #: The depths of the library's functions.
        self.depth: dict[Function, int] = {
            frame.code: depth for depth, frame in enumerate(path) if "library" in frame.roles and times[frame.code] == 1
        }

    def leave(self, stack: Stack) -> Leaving:
        """The place where a stack leaves the path: the first library function at another line, else the last on it."""
        if not self.depth:
            return _NOWHERE
        found = self._left.get(stack)
        if found is None:
            found = self._left[stack] = self._leave(stack)
        return found

    def _leave(self, stack: Stack) -> Leaving:
        left = None
        for i, frame in enumerate(stack):
            depth = self.depth.get(frame.code) if "library" in frame.roles else None
            if depth is not None:
                left = i
                if frame.line != self.lines[depth]:
                    break
        if left is None:
            return _NOWHERE
        inside = stack[left + 1 :]
        if any(frame.user and self._user_lines.get(frame.code) != frame.line for frame in stack[:left]):
            return Leaving((), inside)
        return Leaving((*self.lines[: self.depth[stack[left].code]], stack[left].line), inside)


def _to_backward(samples: Sequence[StackSample]) -> Stack:
    """The frames down to backward of the most frequent stack in it."""
    inside = (sample for sample in samples if sample.phase == "backward")
    most = max(inside, key=lambda sample: sample.count, default=None)
    return () if most is None else most.before("backward")
