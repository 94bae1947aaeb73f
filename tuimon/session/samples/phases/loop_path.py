"""The path to backward: the frames from the root to the user's line that leads to it, or to the update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tuimon.session.samples.frame_table import FrameTable
from tuimon.session.samples.phases.returned_gradients import returned_gradients
from tuimon.session.samples.stack_phase import StackPhase

#: Where gradients are made or used.
UPDATES: frozenset[StackPhase] = frozenset({"backward", "optimizer"})


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
