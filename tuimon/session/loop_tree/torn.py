"""Stacks that were read while they changed, and have lost their callers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from itertools import pairwise
from typing import NamedTuple

from tuimon.session.loop_tree.frame_table import FrameTable, Function
from tuimon.session.loop_tree.order import CountedStack
from tuimon.session.loop_tree.sample import Sample

#: A root that at least this share (0..1) of a thread's samples has is the thread's; a stack with another root was read
#: while it changed, and is torn.
_COMMON_ROOT_SHARE = 0.8


def by_root(counted: Sequence[CountedStack], frames: FrameTable) -> tuple[list[CountedStack], list[CountedStack]]:
    """Stacks that begin at the thread's root, and others: torn ones, and what Python runs at exit.

    Neither counts for which root is the thread's where it holds no code of the user's.
    """
    roots: Counter[Function] = Counter()
    own = [sample for sample in counted if any(frames[number].user for number in sample.stack)]
    for sample in own or counted:
        roots[_root(sample, frames)] += sample.times
    root, most = next(iter(roots.most_common(1)), (None, 0))
    if most < _COMMON_ROOT_SHARE * roots.total():
        return list(counted), []
    torn = [sample for sample in counted if _root(sample, frames) != root]
    return [sample for sample in counted if _root(sample, frames) == root], torn


def like_whole_ones(torn: Sequence[CountedStack], samples: Sequence[Sample], frames: FrameTable) -> list[Sample]:
    """Torn stacks, each in the phase of most whole ones that pass through its outermost function, called as by these.

    Without their callers, those of a line that takes most of its time in short calls would count for no line.
    """
    left = {_root(sample, frames) for sample in torn}
    callers: dict[Function, Counter[tuple[_Counted, tuple[int, ...]]]] = {function: Counter() for function in left}
    for whole in samples if left else ():
        for function, depth in _first_depths(whole.stack, frames).items():
            if function in left:
                counted = _Counted(whole.phase, whole.excluded, whole.moved_from, whole.maybe_from)
                callers[function][counted, tuple(whole.stack[:depth])] += whole.count
    out = []
    for sample in torn:
        found = callers[_root(sample, frames)]
        phases: Counter[str] = Counter()
        ways: Counter[_Counted] = Counter()
        for (way, _), count in found.items():
            phases[way.phase] += count
            ways[way] += count
        likely = next((phase for phase, _ in phases.most_common(1)), None)
        is_known = sample.boundary != "rest"
        way = _Counted(sample.boundary, likely is None)
        if not is_known:
            way = next((way for way, _ in ways.most_common() if way.phase == likely), _Counted("other", True))
        called = next((path for (of, path), _ in found.most_common() if of.phase == way.phase), ())
        is_lost = not (likely or is_known or any(frames[number].user for number in sample.stack))
        out.append(
            Sample(
                [*called, *sample.stack],
                sample.times,
                way.phase,
                way.excluded,
                False,
                way.moved_from,
                way.maybe_from,
                (),
                is_lost,
            )
        )
    return out


class _Counted(NamedTuple):
    """Where and how a sample counts, as in ``Sample``."""

    phase: str
    excluded: bool
    moved_from: str | None = None
    maybe_from: str | None = None


def _first_depths(stack: Sequence[int], frames: FrameTable) -> dict[Function, int]:
    """The depth at which each function of a stack is called first."""
    depths: dict[Function, int] = {}
    for depth, number in enumerate(stack):
        depths.setdefault(frames.function(number), depth)
    return depths


def _root(sample: CountedStack, frames: FrameTable) -> Function:
    """The outermost function of a stack."""
    return frames.function(sample.stack[0] if sample.stack else -1)


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
