"""Stacks of a training thread, in their phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuimon.records import Frame
from tuimon.session.stacks.loop import NOTHING_SEEN, Seen
from tuimon.session.stacks.phases import Fact, placed
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import Trie

Counted = tuple[Sequence[Frame], int]


FACTS: dict[str, Fact] = {
    "has_loader": "loader",
    "has_optimizer": "optimizer",
    "marks_evaluation": "evaluation",
    "forward_only": "steps",
}


def by_ids(stacks: Mapping[tuple[int, ...], int], trie: Trie, seen: Seen = NOTHING_SEEN, **known: bool) -> list[Sample]:
    """The sample of each stack of frame ids, root first; ``known``: of FACTS."""
    counts = {trie.node(ids): count for ids, count in stacks.items()}
    return list(placed(counts, {FACTS[name] for name, is_so in known.items() if is_so}, seen))


def classified(counted: Iterable[Counted], **known: Any) -> list[Sample]:
    """The sample of each stack of frames, root first, that was seen so often; a frame has one id, as in a log.

    A torn stack has that of the frames that are left of it.
    """
    ids: dict[Frame, int] = {}
    numbered = [(tuple(ids.setdefault(frame, len(ids)) for frame in stack), count) for stack, count in counted]
    trie, stacks = Trie(), Counter[tuple[int, ...]]()
    trie.add_frames(0, list(ids))
    for stack, count in numbered:
        stacks[stack] += count
    found = {sample.node.ids: sample for sample in by_ids(stacks, trie, **known)}
    return [
        next(found[stack[:depth]] for depth in range(len(stack), 0, -1) if stack[:depth] in found)
        for stack, _ in numbered
    ]


def last_of(*stacks: Sequence[Frame], count: int = 20, **known: Any) -> Sample:
    """The sample of the last of these stacks, each seen so often."""
    return classified([(stack, count) for stack in stacks], **known)[-1]
