"""Whether a thread has left the loops that it trained in: then its training is over, and its wait is no hang."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.code_origin import is_agent_file
from tuimon.sources.source_blocks import SourceBlocks
from tuimon.sources.stacks.frames.frame_ids import RawFrame, bare_name


def has_left(now: Sequence[RawFrame], trained: Sequence[RawFrame], blocks: SourceBlocks) -> bool:
    """Whether no loop holds both where a thread is (``now``) and where it trained; frames root first.

    Where ``main()`` calls ``fit()`` in a ``for`` and ``serve()`` below it, ``serve()`` has left the loop; what follows
    ``fit()`` inside the ``for`` has not. False where the source is not known, or one line calls both: that loop may
    be in C.
    """
    here, there = _own(now), _own(trained)
    if not here or not there:
        return False
    for depth, (one, other) in enumerate(zip(here, there, strict=False)):
        if _function(one) != _function(other):
            return depth == 0  # below, one line calls both
        if blocks.in_one_loop(one.file, one.line, other.line) is not False:
            return False
        if one.line != other.line:
            return True
    return False


def _own(frames: Sequence[RawFrame]) -> list[RawFrame]:
    return [frame for frame in frames if not is_agent_file(frame.file)]


def _function(frame: RawFrame) -> tuple[str, str]:
    return frame.file, bare_name(frame.function)
