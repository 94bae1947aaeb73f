"""Samples of a training thread and their phases: by a boundary in the stack, else by the loop's own lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuimon.session.samples.frames import FrameTable
from tuimon.session.samples.loop_lines import Bounded, LoopLines
from tuimon.session.samples.range_join import RANGE, RangeJoin
from tuimon.session.samples.stack_phase import stack_phase

#: Samples before the backward call that must have been seen without a forward pass among them, before the user's lines
#: there are taken for the forward pass itself (a model without modules); until then they divide nothing (proposal).
ENOUGH_SAMPLES = 150
#: One root that so many samples (of 1) share is the thread's; a stack with another was misread while it changed.
_ROOTED = 0.8


@dataclass(frozen=True, slots=True)
class Sample:
    """A stack of a training thread (frame ids, root first), how often it was seen, and its phase."""

    stack: list[int]
    count: int
    phase: str
    told: bool = False  # divides nothing: markers tell its phase exactly, or nothing tells it yet
    ranges: tuple[str, ...] = ()  # paths of the user's ranges that it lies in, outer ones first

    def lies_in(self, part: str | None) -> bool:
        """Whether it is of a phase, or of a user range: RANGE and its path; everything is of None."""
        if part is None:
            return True
        return part.removeprefix(RANGE) in self.ranges if part.startswith(RANGE) else self.phase == part


def classify(stacks: Mapping[tuple[int, ...], int], frames: FrameTable, join: RangeJoin | None = None) -> list[Sample]:
    """The samples of one training thread (stack of frame ids, root first -> count) with their phases and ranges."""
    bounded = [Bounded(stack, n, stack_phase([frames.kind(id_) for id_ in stack])) for stack, n in stacks.items()]
    loop = LoopLines(bounded, frames)
    few = sum(sample.seen for sample in bounded if sample.boundary == "rest") < ENOUGH_SAMPLES
    whole, torn = _by_root(bounded, frames)
    samples = [_placed(sample, loop, few) for sample in whole]
    samples += _like_others(torn, samples, frames)
    if join is None or not join.paths:
        return samples
    return [replace(sample, ranges=join.ranges_of(sample.stack, frames)) for sample in samples]


def _placed(sample: Bounded, loop: LoopLines, few: bool) -> Sample:
    """Without a sight of the forward pass what lies outside every boundary is taken for forward, at last."""
    stack, count, boundary = sample
    if boundary in ("backward", "optimizer"):
        return Sample(list(stack), count, boundary)
    parting = loop.parting(stack)
    if loop.evaluates(parting):
        return Sample(list(stack), count, "eval")
    if boundary == "forward" and not loop.trains(parting):
        return Sample(list(stack), count, "other")
    if boundary != "rest":
        return Sample(list(stack), count, boundary)
    if loop.after_fetch(parting):
        return Sample(list(stack), count, "forward", told=True)
    phase = loop.phase_of(parting)
    if phase is None:
        return Sample(list(stack), count, "forward", told=few)
    return Sample(list(stack), count, phase, told=loop.before_update(parting))


def _by_root(bounded: Sequence[Bounded], frames: FrameTable) -> tuple[list[Bounded], list[Bounded]]:
    """Stacks that begin at the thread's root, and those that were torn: without their outermost frames."""
    roots: Counter[tuple[str, str]] = Counter()
    for sample in bounded:
        roots[_function(sample.stack[:1], frames)] += sample.seen
    root, most = next(iter(roots.most_common(1)), (None, 0))
    if most < _ROOTED * roots.total():
        return list(bounded), []
    torn = [sample for sample in bounded if _function(sample.stack[:1], frames) != root]
    return [sample for sample in bounded if _function(sample.stack[:1], frames) == root], torn


def _like_others(torn: Sequence[Bounded], samples: Sequence[Sample], frames: FrameTable) -> list[Sample]:
    """Torn stacks have the phase of most whole ones that pass through the function that is left of them."""
    left = {_function(sample.stack[:1], frames) for sample in torn}
    phases: dict[tuple[str, str], Counter[str]] = {function: Counter() for function in left}
    for whole in samples if left else ():
        for function in {_function((number,), frames) for number in whole.stack} & left:
            phases[function][whole.phase] += whole.count
    out = []
    for sample in torn:
        likely = phases[_function(sample.stack[:1], frames)].most_common(1)
        phase = sample.boundary if sample.boundary != "rest" else likely[0][0] if likely else "other"
        out.append(Sample(list(sample.stack), sample.seen, phase, told=not likely))
    return out


def _function(stack: Sequence[int], frames: FrameTable) -> tuple[str, str]:
    frame = frames[stack[0]] if stack else frames[-1]
    return frame.file, frame.function
