"""Stacks of an update that were read while they changed: outer frames of some other function, inner ones of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuimon.session.samples.frame_table import FrameTable
from tuimon.session.samples.phases.loop_path import CountedStack

#: Where so many samples have a line as their innermost, and one is in backward or an update below it, that one is torn:
#: our choice. A line that calls either is in torch when it is sampled; its own bytecode takes a microsecond.
_MANY = 8


def without_torn_updates(samples: Sequence[CountedStack], frames: FrameTable) -> list[CountedStack]:
    """The samples of one thread, those of torn stacks as if they ended at the line of the user's.

    py-spy reads a running process: ``main log``, and then ``main adam``, may come out as ``main log adam``. Taken as it
    is, ``log`` would be where the loop updates its parameters, and no side work.
    """
    innermost: Counter[int] = Counter()
    updates: Counter[int] = Counter()
    for stack, times, boundary in samples:
        if boundary in ("backward", "optimizer"):
            updates[_caller(stack, frames)] += times
        elif stack:
            innermost[stack[-1]] += times
    torn = {caller for caller, times in updates.items() if times == 1 and innermost[caller] >= _MANY}
    return [_ended(sample, torn, frames) for sample in samples] if torn else list(samples)


def _ended(sample: CountedStack, torn: set[int], frames: FrameTable) -> CountedStack:
    if sample.boundary not in ("backward", "optimizer"):
        return sample
    caller = _caller(sample.stack, frames)
    if caller not in torn:
        return sample
    return CountedStack(sample.stack[: sample.stack.index(caller) + 1], sample.times, "rest")


def _caller(stack: Sequence[int], frames: FrameTable) -> int:
    """The user's innermost frame that leads to the boundary; -1 without one."""
    depth = next((i for i, number in enumerate(stack) if frames.kind(number) in ("backward", "optimizer")), len(stack))
    return next((number for number in reversed(stack[:depth]) if frames[number].user), -1)
