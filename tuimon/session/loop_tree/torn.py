"""Stacks that were read while they changed, and have lost their callers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence, Set
from itertools import pairwise

from msgspec.structs import replace

from tuimon.session.loop_tree.frame_table import Function, KnownFrame
from tuimon.session.loop_tree.order import is_torn, to_user
from tuimon.session.loop_tree.stacks import NEARLY_ALL, UPDATES, StackSample


def by_root(samples: Sequence[StackSample]) -> tuple[list[StackSample], list[StackSample]]:
    """Stacks that begin at the thread's root, which nearly all have, and others: torn ones, and what runs at exit.

    Neither counts for which root is the thread's where it holds no code of the user's.
    """
    roots: Counter[Function | None] = Counter()
    for sample in [sample for sample in samples if sample.user_line is not None] or samples:
        roots[_root(sample)] += sample.count
    root, most = next(iter(roots.most_common(1)), (None, 0))
    if most < NEARLY_ALL * roots.total():
        return list(samples), []
    whole = [sample for sample in samples if _root(sample) == root]
    return whole, [sample for sample in samples if _root(sample) != root]


def like_whole_ones(torn: Sequence[StackSample], whole: Sequence[StackSample]) -> list[StackSample]:
    """Torn stacks, each in the phase of the most frequent whole one through its outermost function, called as in it.

    Without their callers, those of a line that takes most of its time in short calls would count for no line.
    """
    ways: dict[Function, tuple[StackSample, int]] = {}
    for sample in sorted(whole, key=lambda sample: sample.count) if torn else ():
        for depth in range(len(sample.frames) - 1, -1, -1):
            ways[sample.frames[depth].code] = sample, depth
    return [_like(sample, ways.get(sample.frames[0].code) if sample.frames else None) for sample in torn]


def _like(sample: StackSample, way: tuple[StackSample, int] | None) -> StackSample:
    if way is None:
        is_known = sample.phase != "rest"
        is_lost = not is_known and sample.user_line is None
        return replace(sample, phase=sample.phase if is_known else "other", excluded=True, is_lost=is_lost)
    like, depth = way
    frames = (*like.frames[:depth], *sample.frames)
    if sample.phase not in ("rest", like.phase):
        return sample
    return replace(like, frames=frames, count=sample.count)


def _root(sample: StackSample) -> Function | None:
    """The outermost function of a stack."""
    return sample.frames[0].code if sample.frames else None


_TRAINING_KINDS = ("backward", "optimizer", "module")


def without_torn_updates(samples: Sequence[StackSample]) -> list[StackSample]:
    """The samples of one thread, those of torn stacks as if they ended at the line that called it, or the user's.

    py-spy reads a running process: ``main log``, and then ``main adam``, may come out as ``main log adam``. Taken as it
    is, ``log`` would be where the loop updates its parameters, and no side work. Samples that end at the line show it,
    as one that calls an update is in torch when it is sampled: its own bytecode takes a microsecond. So do those in
    which it calls something else, neither an update nor a model.
    """
    innermost, by_user, called = Counter[KnownFrame](), Counter[KnownFrame](), Counter[KnownFrame]()
    for sample in samples:
        if sample.phase not in UPDATES:
            innermost.update(dict.fromkeys(sample.frames[-1:], sample.count))
            continue
        callers = sample.before("backward", "optimizer")
        by_user.update(dict.fromkeys(to_user(callers)[-1:], sample.count))
        called.update(dict.fromkeys(callers[-1:], sample.count))
    others = _others(samples, {caller for caller, n in called.items() if n == 1})
    torn = {caller for caller, n in by_user.items() if is_torn(n, innermost[caller])}
    torn |= {caller for caller, n in others.items() if is_torn(called[caller], n)}
    return [_ended(sample, torn) for sample in samples] if torn else list(samples)


def _others(samples: Sequence[StackSample], callers: Set[KnownFrame]) -> Counter[KnownFrame]:
    """How many samples show that these lines call what neither trains nor is a model."""
    others: Counter[KnownFrame] = Counter()
    for sample in samples if callers else ():
        if sample.phase not in UPDATES:
            for frame, inner in pairwise(sample.frames):
                if frame in callers and inner.kind not in _TRAINING_KINDS:
                    others[frame] += sample.count
    return others


def _ended(sample: StackSample, torn: Container[KnownFrame]) -> StackSample:
    if sample.phase not in UPDATES:
        return sample
    callers = sample.before("backward", "optimizer")
    last = next((frame for frame in (*callers[-1:], *to_user(callers)[-1:]) if frame in torn), None)
    return sample if last is None else sample.at("rest", sample.frames[: sample.frames.index(last) + 1])
