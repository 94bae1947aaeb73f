"""Shortens stacks for the log: library frames that tell nothing go, rare stacks are merged, the rest is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuimon.records import StackCount
from tuimon.sources.frames import FrameNumbers, Place

PER_THREAD = 12
PER_PROCESS = 40
_DEPTH = 48

Stack = tuple[Place, ...]  # root first


def shorten(stack: Sequence[Place], numbers: FrameNumbers) -> Stack:
    """What is kept: the user's frames and what they call, torch's telling ones, the innermost of a package, the leaf.

    A stack that is still deeper than 48 keeps its outermost and innermost frames.
    """
    kinds = [numbers.kind(place) for place in stack]
    last = len(stack) - 1
    package = max((i for i in range(last + 1) if "-packages/" in stack[i].file), default=last)
    kept = tuple(
        place
        for i, (place, kind) in enumerate(zip(stack, kinds, strict=True))
        if i in (last, package)
        or kind.user
        or (not kind.silent and (kind.telling or (i > 0 and kinds[i - 1].user)))  # the latter: what the user called
    )
    return kept if len(kept) <= _DEPTH else kept[: _DEPTH // 4] + kept[-(_DEPTH - _DEPTH // 4) :]


def coarse(stack: Stack, numbers: FrameNumbers) -> Stack:
    """A stack without its detail: the user's frames up to torch, then one frame for each part of torch that it enters.

    That is what tells its phase, also where forward and backward run inside ``optimizer.step(closure)``.
    """
    out: list[Place] = []
    part = ""
    for place in stack:
        kind = numbers.kind(place)
        if kind.telling and (kind.telling != part or place.function == "_worker_loop"):
            out.append(place)
            part = kind.telling
        elif kind.user and not part:
            out.append(place)
    return tuple(out) or stack[:1]


def most_frequent(counts: Counter[Stack], room: int, numbers: FrameNumbers) -> tuple[list[tuple[Stack, int]], int]:
    """At most ``room`` stacks, most frequent first, and how many samples are in none of them.

    Rare stacks are first merged into coarse ones, so that what they say about the phase is not lost.
    """
    ordered = counts.most_common()
    if len(ordered) <= room:
        return ordered, 0
    whole = (room + 1) // 2
    merged: Counter[Stack] = Counter(dict(ordered[:whole]))
    rest: Counter[Stack] = Counter()
    for stack, count in ordered[whole:]:
        rest[coarse(stack, numbers)] += count
    for stack in merged.keys() & rest.keys():
        merged[stack] += rest.pop(stack)
    listed = rest.most_common(room - len(merged))
    merged.update(dict(listed))
    return merged.most_common(), sum(rest.values()) - sum(count for _, count in listed)


def is_parked(counts: Counter[Stack], numbers: FrameNumbers) -> bool:
    """Whether a thread stayed in one place outside the user's code and torch: a pool, a feeder, a progress bar."""
    if len(counts) != 1:
        return False
    (stack,) = counts
    return not any(kind.user or kind.telling for kind in map(numbers.kind, stack))


class Fold:
    """Collects the stacks of one process and window, thread by thread."""

    def __init__(self, numbers: FrameNumbers, not_after_unix_s: float | None = None) -> None:
        self._numbers = numbers
        self._not_after_unix_s = not_after_unix_s
        self.stacks: list[StackCount] = []
        self.parked: list[tuple[int, str]] = []
        self.folded = 0

    def add(self, tid: int, thread: str, stacks: Counter[Stack], main: bool) -> None:
        """One thread's whole stacks."""
        short: Counter[Stack] = Counter()
        for stack, count in stacks.items():
            if stack:
                short[shorten(stack, self._numbers)] += count
        if not short or (not main and is_parked(short, self._numbers)):
            self.parked.append((tid, thread))
            return
        room = min(PER_THREAD, PER_PROCESS - len(self.stacks))
        if room < 2:
            self.folded += sum(short.values())
            return
        listed, lost = most_frequent(short, room, self._numbers)
        self.folded += lost
        for stack, count in listed:
            frames = [self._numbers.number(place, self._not_after_unix_s) for place in stack]
            self.stacks.append(StackCount(tid, thread, frames, count))
