"""Stacks of a training thread, classified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tuimon.records import Frame
from tuimon.session.loop_tree.frame_table import FrameTable
from tuimon.session.loop_tree.phases import classify_samples
from tuimon.session.loop_tree.stacks import StackSample

Counted = tuple[Sequence[Frame], int]


def classified(counted: Iterable[Counted], **how: Any) -> list[StackSample]:
    """The sample of each stack of frames, root first, that was seen so often; a frame has one id, as in a log.

    ``how``: further arguments of ``classify_samples``.
    """
    ids: dict[Frame, int] = {}
    numbered = [(tuple(ids.setdefault(frame, len(ids)) for frame in stack), count) for stack, count in counted]
    table, stacks = FrameTable(), Counter[tuple[int, ...]]()
    table.add_frames(0, list(ids))
    for stack, count in numbered:
        stacks[stack] += count
    found = {tuple(sample.ids): sample for sample in classify_samples(stacks, table, **how)}
    return [found[stack] for stack, _ in numbered]


def last_of(*stacks: Sequence[Frame], count: int = 20, **how: Any) -> StackSample:
    """The sample of the last of these stacks, each seen so often."""
    return classified([(stack, count) for stack in stacks], **how)[-1]
