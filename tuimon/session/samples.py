"""Samples of a training thread and their phases: by a boundary in the stack, else by the loop's own lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuimon.session.frames import FrameTable
from tuimon.session.stack_phase import stack_phase

#: Samples before the backward call that must have been seen without a forward pass among them, before the user's lines
#: there are taken for the forward pass itself (a model without modules); until then they divide nothing (proposal).
ENOUGH_SAMPLES = 150


@dataclass(frozen=True, slots=True)
class Sample:
    """A stack of a training thread (frame ids, root first), how often it was seen, and its phase."""

    stack: list[int]
    count: int
    phase: str
    told: bool = False  # divides nothing: markers tell its phase exactly, or nothing tells it yet


def classify(stacks: Mapping[tuple[int, ...], int], frames: FrameTable) -> list[Sample]:
    """The samples of one training thread (stack of frame ids, root first -> count) with their phases."""
    phased = [
        Sample(list(stack), count, stack_phase([frames.kind(n) for n in stack])) for stack, count in stacks.items()
    ]
    loop = LoopLines(phased, frames)
    few = sum(s.count for s in phased if s.phase == "rest") < ENOUGH_SAMPLES
    return [_placed(s, loop, few) if s.phase == "rest" else s for s in phased]


def _placed(sample: Sample, loop: LoopLines, few: bool) -> Sample:
    """A sample outside every boundary; without a sight of the forward pass it is taken for forward, at last."""
    phase = loop.phase_of(sample.stack)
    if phase is None:
        return replace(sample, phase="forward", told=few)
    return replace(sample, phase=phase, told=loop.before_update(sample.stack))


class LoopLines:
    """The lines of the user's loop: where backward is called, where the forward pass begins.

    A sample outside every boundary is placed by the frame at which its stack parts from the way to the backward call:
    on an earlier line than the first forward line it prepares data, up to the backward line it is forward, later it is
    side work.
    """

    def __init__(self, samples: list[Sample], frames: FrameTable) -> None:
        self._frames = frames
        self._backward = self._way(samples, "backward")
        self._forward_line: dict[int, int] = {}  # depth -> first line of the forward pass in that frame of the way
        self._update_line: dict[int, int] = {}  # depth -> first line of the update in that frame of the way
        for sample in samples:
            if sample.phase == "optimizer":
                self._note_update(sample.stack)
            if sample.phase == "forward":
                depth = self._parting(sample.stack)
                if depth is not None:
                    line = frames[sample.stack[depth]].line
                    self._forward_line[depth] = min(line, self._forward_line.get(depth, line))

    def phase_of(self, stack: list[int]) -> str | None:
        """``data``, ``forward`` or ``other``; None before the backward call while no forward pass was seen."""
        depth = self._parting(stack)
        if depth is None:
            return "other"
        line = self._frames[stack[depth]].line
        if line > self._frames[self._backward[depth]].line:
            return "other"
        first_forward = self._forward_line.get(depth)
        if first_forward is not None:
            return "data" if line < first_forward else "forward"
        if not self._forward_line:
            return None
        # the forward pass lies in a call further down this way, or was over before this frame was entered
        return "data" if min(self._forward_line) > depth else "forward"

    def before_update(self, stack: list[int]) -> bool:
        """Whether a sample lies between backward and the update: a stretch that markers label."""
        depth = self._parting(stack)
        if depth is None or depth not in self._update_line:
            return False
        backward = self._frames[self._backward[depth]].line
        return backward < self._frames[stack[depth]].line < self._update_line[depth]

    def _note_update(self, stack: list[int]) -> None:
        depth = self._parting(stack)
        if depth is not None:
            line = self._frames[stack[depth]].line
            if line > self._frames[self._backward[depth]].line:
                self._update_line[depth] = min(line, self._update_line.get(depth, line))

    def _way(self, samples: list[Sample], phase: str) -> list[int]:
        """Frames from the root to the innermost user frame of the most frequent stack of a phase."""
        best = max((s for s in samples if s.phase == phase), key=lambda s: s.count, default=None)
        if best is None:
            return []
        stack = best.stack
        boundary = next((i for i, n in enumerate(stack) if self._frames.kind(n) == phase), len(stack))
        while boundary and not self._frames[stack[boundary - 1]].user:
            boundary -= 1
        return stack[:boundary]

    def _parting(self, stack: list[int]) -> int | None:
        """Depth of the frame in which a stack leaves the way to the backward call; None if it never was on it."""
        depth = None
        for i, (own, way) in enumerate(zip(stack, self._backward, strict=False)):
            mine, theirs = self._frames[own], self._frames[way]
            if (mine.file, mine.function) != (theirs.file, theirs.function):
                break
            depth = i
            if mine.line != theirs.line:
                break
        return depth
