"""Shortens stacks for the log: library frames that tell nothing go, rare stacks are merged, the rest is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tuimon.records import StackCount
from tuimon.sources.stacks.frames import FrameNumbers, Place
from tuimon.torch_code import is_package_file, is_worker_loop

PER_THREAD = 12
PER_MAIN_THREAD = 24
PER_PROCESS = 52
_DEPTH = 48

Stack = tuple[Place, ...]  # root first


def shorten(stack: Sequence[Place], numbers: FrameNumbers) -> Stack:
    """What is kept: the user's frames and what they call, torch's telling ones, the innermost of a package, the leaf.

    A stack that is still deeper than 48 keeps its outermost and innermost frames.
    """
    kinds = [numbers.kind(place) for place in stack]
    last = len(stack) - 1
    package = max((i for i in range(last + 1) if is_package_file(stack[i].file)), default=last)
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
        if kind.telling and (kind.telling != part or is_worker_loop(place.file, place.function)):
            out.append(place)
            part = kind.telling
        elif kind.user and not part:
            out.append(place)
    return tuple(out) or stack[:1]


def loop_depth(counts: Counter[Stack], numbers: FrameNumbers) -> int:
    """How many of the user's functions most samples have in common, counted from the root: down to the loop."""
    half = counts.total() / 2
    depth = 0
    passing = counts
    while True:
        by_function: Counter[tuple[str, str]] = Counter()
        for stack, count in passing.items():
            if len(stack) > depth and not numbers.kind(stack[depth]).telling:
                by_function[_function(stack[depth])] += count
        function, most = next(iter(by_function.most_common(1)), (None, 0))
        if most <= half:
            return depth
        passing = Counter({s: n for s, n in passing.items() if len(s) > depth and _function(s[depth]) == function})
        depth += 1


def outline(stack: Stack, depth: int, lines: dict[tuple[str, str], int], numbers: FrameNumbers) -> Stack:
    """A coarse stack without the user's frames further down than what the loop's own lines call.

    Which line of a function of torch it was does not count: ``lines`` remembers one for each.
    """
    out, parts = [], set()
    for i, place in enumerate(stack):
        part = numbers.kind(place).telling
        if part and (part not in parts or is_worker_loop(place.file, place.function)):
            parts.add(part)
            out.append(place._replace(line=lines.setdefault(_function(place), place.line)))
        elif not part and i <= depth:
            out.append(place)
    return tuple(out)


def most_frequent(counts: Counter[Stack], room: int, numbers: FrameNumbers) -> tuple[list[tuple[Stack, int]], int]:
    """At most ``room`` stacks, most frequent first, and how many samples are in none of them.

    Rare stacks are merged first into coarse ones, then into outlines, so that what they say about the phase is kept.
    """
    if len(counts) <= room:
        return counts.most_common(), 0
    kept, rest = _split(counts, (room + 1) // 2)
    kept, rest = _merge(kept, rest, lambda stack: coarse(stack, numbers))
    if len(kept) + len(rest) > room:
        common, rare = _split(rest, (room - len(kept)) // 2)
        depth = loop_depth(counts, numbers)
        lines: dict[tuple[str, str], int] = {}
        kept, rest = _merge(kept + common, rare, lambda stack: outline(stack, depth, lines, numbers))
    listed, lost = _split(rest, room - len(kept))
    return (kept + listed).most_common(), lost.total()


def _split(counts: Counter[Stack], number: int) -> tuple[Counter[Stack], Counter[Stack]]:
    ordered = counts.most_common()
    return Counter(dict(ordered[:number])), Counter(dict(ordered[number:]))


def _merge(
    kept: Counter[Stack], rest: Counter[Stack], shortened: Callable[[Stack], Stack]
) -> tuple[Counter[Stack], Counter[Stack]]:
    """The rest shortened, and added to what is kept where it is the same now."""
    short: Counter[Stack] = Counter()
    for stack, count in rest.items():
        short[shortened(stack)] += count
    same = Counter({stack: short.pop(stack) for stack in kept.keys() & short.keys()})
    return kept + same, short


def _function(place: Place) -> tuple[str, str]:
    return place.file, place.function


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
        room = min(PER_MAIN_THREAD if main else PER_THREAD, PER_PROCESS - len(self.stacks))
        if room < 2:
            self.folded += sum(short.values())
            return
        listed, lost = most_frequent(short, room, self._numbers)
        self.folded += lost
        for stack, count in listed:
            frames = [self._numbers.number(place, self._not_after_unix_s) for place in stack]
            self.stacks.append(StackCount(tid, thread, frames, count))
