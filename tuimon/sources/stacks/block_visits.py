"""How often the training visits blocks of code that may evaluate, by the order of its samples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from msgspec import Struct, field

from tuimon.proc.target_files import TargetFiles
from tuimon.records import BlockVisits
from tuimon.sources.stacks.frames.frame_ids import FrameIds, RawFrame
from tuimon.sources.stacks.pyspy.output import SampledThread

#: Most blocks that a window lists, those with most samples.
_LIMIT = 16
#: The parts of code that a stack comes to torch through.
_OUTSIDE_TORCH = ("", "evaluation", "rollout")


class _Visited(Struct):
    frame: int  # id of one in it
    samples: int = 0
    rounds: set[int] = field(default_factory=set)


def block_visits(thread: SampledThread, ids: FrameIds, files: TargetFiles) -> list[BlockVisits]:
    """The blocks that a thread's samples of one window are in; none of one that does not train."""
    visited: dict[tuple[str, int, str], _Visited] = {}
    for stack, rounds in thread.rounds.items():
        for block, frame in dict(_blocks(stack, ids, files)).items():
            one = visited.get(block)
            if one is None:
                one = visited[block] = _Visited(ids.id_of(frame, files))
            one.samples += thread.stacks[stack]
            one.rounds |= rounds
    most = sorted(visited.values(), key=lambda one: -one.samples)[:_LIMIT]
    return [BlockVisits(one.frame, one.samples, len(one.rounds)) for one in most]


def _blocks(
    stack: tuple[RawFrame, ...], ids: FrameIds, files: TargetFiles
) -> Iterator[tuple[tuple[str, int, str], RawFrame]]:
    """The blocks around a stack before it comes to torch, each with its frame."""
    for frame in takewhile(lambda frame: ids.traits(frame).part in _OUTSIDE_TORCH, stack):
        block = ids.block_of(frame, files)
        if block is not None:
            yield block, frame
