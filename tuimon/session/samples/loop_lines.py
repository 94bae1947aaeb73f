"""The lines of the user's loop: where the forward pass begins, where backward and the update are, what evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.session.samples.frames import FrameTable
from tuimon.session.samples.stack_phase import StackPhase


class Bounded(NamedTuple):
    """A stack (frame ids, root first), how often it was seen, and the innermost boundary that it is in."""

    stack: tuple[int, ...]
    seen: int
    boundary: StackPhase


class Parting(NamedTuple):
    """Where a stack leaves the way to the backward call.

    ``called`` is the user's function that the line calls, as file and name; None where torch or nothing is called.
    """

    depth: int
    line: int
    called: tuple[str, str] | None


class LoopLines:
    """Places samples by the frame at which their stacks part from the way to the backward call.

    On an earlier line than the first forward line a sample prepares data, up to the last line that backward or the
    update is on it is forward, later it is side work. Lines, or a call, that fetch and run the model without a
    backward evaluate.
    """

    def __init__(self, samples: Sequence[Bounded], frames: FrameTable) -> None:
        self._frames = frames
        self._way = self._way_to_backward(samples)
        self._last_line = {depth: frames[number].line for depth, number in enumerate(self._way)}
        self._update_line: dict[int, int] = {}  # depth -> first line of the update in that frame of the way
        self._forward_line: dict[int, int] = {}  # depth -> first line of the forward pass in that frame of the way
        self._fetch_lines: set[tuple[int, int]] = set()  # depth and line of the fetches for training
        self._evaluating: set[Parting] = set()  # calls
        self._evaluated: dict[int, tuple[int, int]] = {}  # depth -> first and last line
        placed = [(boundary, parting) for stack, _, boundary in samples if (parting := self.parting(stack)) is not None]
        self._note_updates(placed)
        self._note_evaluation(placed)
        self._note_fetch_and_forward(placed)

    def parting(self, stack: Sequence[int]) -> Parting | None:
        """Where a stack leaves the way to the backward call; None if it never was on it."""
        depth = None
        for i, (own, way) in enumerate(zip(stack, self._way, strict=False)):
            mine, theirs = self._frames[own], self._frames[way]
            if (mine.file, mine.function) != (theirs.file, theirs.function):
                break
            depth = i
            if mine.line != theirs.line:
                break
        if depth is None:
            return None
        below = (self._frames[number] for number in stack[depth + 1 : depth + 3])  # a decorator may lie between
        called = next(((frame.file, frame.function) for frame in below if frame.user), None)
        return Parting(depth, self._frames[stack[depth]].line, called)

    def phase_of(self, parting: Parting | None) -> str | None:
        """``data``, ``forward`` or ``other``; None before the backward call while no forward pass was seen."""
        if parting is None:
            return "other"
        depth, line, _ = parting
        if line > self._frames[self._way[depth]].line:
            return "other"
        first_forward = self._forward_line.get(depth)
        if first_forward is not None:
            return "data" if line < first_forward else "forward"
        if not self._forward_line:
            return None
        # the forward pass lies in a call further down this way, or was over before this frame was entered
        return "data" if min(self._forward_line) > depth else "forward"

    def after_fetch(self, parting: Parting | None) -> bool:
        """Whether it lies on a line that fetches, outside the fetch.

        The old batch is freed as the new one takes its place: for markers the forward pass has begun then.
        """
        return parting is not None and parting.called is None and parting[:2] in self._fetch_lines

    def before_update(self, parting: Parting | None) -> bool:
        """Whether a sample lies between backward and the update: a stretch that markers label."""
        if parting is None or parting.depth not in self._update_line:
            return False
        return self._frames[self._way[parting.depth]].line < parting.line < self._update_line[parting.depth]

    def evaluates(self, parting: Parting | None) -> bool:
        """Whether it lies in a call, or on lines, that fetch and run the model and lead to no backward."""
        if parting is None:
            return False
        first, last = self._evaluated.get(parting.depth, (0, -1))
        return parting in self._evaluating or first <= parting.line <= last

    def trains(self, parting: Parting | None) -> bool:
        """Whether a forward pass there is one of training, as far as lines can tell."""
        return parting is None or not self._forward_line or not self._is_after(parting)

    def _is_after(self, parting: Parting) -> bool:
        return parting.line > self._last_line[parting.depth]

    def _note_updates(self, placed: list[tuple[StackPhase, Parting]]) -> None:
        for phase, (depth, line, _) in placed:
            if phase in ("backward", "optimizer"):
                self._last_line[depth] = max(line, self._last_line[depth])
            if phase == "optimizer" and line > self._frames[self._way[depth]].line:
                self._update_line[depth] = min(line, self._update_line.get(depth, line))

    def _note_evaluation(self, placed: list[tuple[StackPhase, Parting]]) -> None:
        fetching = {parting for phase, parting in placed if phase == "data"}
        running = {parting for phase, parting in placed if phase == "forward"}
        training = {parting for phase, parting in placed if phase in ("backward", "optimizer")}
        both = {parting for parting in fetching & running - training if parting.called}
        later = {parting for parting in both if self._is_after(parting)}
        # without a forward pass elsewhere before backward, a function that fetches and runs the model is the training's
        elsewhere = any(not self._is_after(parting) for parting in running - both)
        self._evaluating = both if elsewhere else later
        fetched: dict[int, int] = {}
        for parting in fetching - both:
            if self._is_after(parting):
                fetched[parting.depth] = min(parting.line, fetched.get(parting.depth, parting.line))
        for depth, line, _ in running - both:
            first = fetched.get(depth)
            if first is not None and line >= first:
                self._evaluated[depth] = (first, max(line, self._evaluated.get(depth, (0, 0))[1]))

    def _note_fetch_and_forward(self, placed: list[tuple[StackPhase, Parting]]) -> None:
        for phase, parting in placed:
            if phase == "data" and not self.evaluates(parting):
                self._fetch_lines.add(parting[:2])
            if phase == "forward" and not self.evaluates(parting) and not self._is_after(parting):
                depth, line, _ = parting
                self._forward_line[depth] = min(line, self._forward_line.get(depth, line))

    def _way_to_backward(self, samples: Sequence[Bounded]) -> Sequence[int]:
        """Frames from the root to the innermost user frame of the most frequent stack in backward."""
        inside = [sample for sample in samples if sample.boundary == "backward"]
        stack = max(inside, key=lambda sample: sample.seen).stack if inside else ()
        boundary = next((i for i, n in enumerate(stack) if self._frames.kind(n) == "backward"), len(stack))
        while boundary and not self._frames[stack[boundary - 1]].user:
            boundary -= 1
        return stack[:boundary]
