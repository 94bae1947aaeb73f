"""Stacks of an update that were read while they changed: outer frames of some other function, inner ones of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from itertools import pairwise

from tuimon.session.samples.frame_table import FrameTable
from tuimon.session.samples.phases.loop_path import CountedStack

#: Where so many samples have a line as their innermost, and one is in backward or an update below it, that one is torn:
#: our choice. A line that calls either is in torch when it is sampled; its own bytecode takes a microsecond. So is one
#: that a line calls directly which calls something else, neither that nor a model, in so many samples.
_MANY = 8
_TRAINS = ("backward", "optimizer")


def without_torn_updates(samples: Sequence[CountedStack], frames: FrameTable) -> list[CountedStack]:
    """The samples of one thread, those of torn stacks as if they ended at the line that called it, or the user's.

    py-spy reads a running process: ``main log``, and then ``main adam``, may come out as ``main log adam``. Taken as it
    is, ``log`` would be where the loop updates its parameters, and no side work.
    """
    innermost: Counter[int] = Counter()
    updates: Counter[int] = Counter()
    called: Counter[int] = Counter()
    for stack, times, boundary in samples:
        if boundary in _TRAINS:
            depth = _depth(stack, frames)
            updates[_users(stack, depth, frames)] += times
            called[_caller(stack, depth)] += times
        elif stack:
            innermost[stack[-1]] += times
    once = {caller for caller, times in called.items() if times == 1}
    torn = {caller for caller, times in updates.items() if times == 1 and innermost[caller] >= _MANY}
    torn |= {caller for caller, times in _others(samples, once, frames).items() if times >= _MANY}
    return [_ended(sample, torn, frames) for sample in samples] if torn else list(samples)


def _others(samples: Sequence[CountedStack], lines: Container[int], frames: FrameTable) -> Counter[int]:
    """How many samples show that these lines call what neither trains nor is a model."""
    others: Counter[int] = Counter()
    for stack, times, boundary in samples:
        if boundary in _TRAINS:
            continue
        for number, inner in pairwise(stack):
            if number in lines and frames.kind(inner) not in (*_TRAINS, "module"):
                others[number] += times
    return others


def _ended(sample: CountedStack, torn: Container[int], frames: FrameTable) -> CountedStack:
    if sample.boundary not in _TRAINS:
        return sample
    stack, depth = sample.stack, _depth(sample.stack, frames)
    last = next((number for number in (_caller(stack, depth), _users(stack, depth, frames)) if number in torn), None)
    return sample if last is None else CountedStack(stack[: stack.index(last) + 1], sample.times, "rest")


def _depth(stack: Sequence[int], frames: FrameTable) -> int:
    """The first frame of the boundary."""
    return next((i for i, number in enumerate(stack) if frames.kind(number) in _TRAINS), len(stack))


def _caller(stack: Sequence[int], depth: int) -> int:
    """The frame that calls this one; -1 without one."""
    return stack[depth - 1] if depth else -1


def _users(stack: Sequence[int], depth: int, frames: FrameTable) -> int:
    """The user's innermost frame outside this one; -1 without one."""
    return next((number for number in reversed(stack[:depth]) if frames[number].user), -1)
