"""Backward passes that only return gradients, such as forces: training takes them, and so may an evaluation."""

from __future__ import annotations

from collections.abc import Set

from tuimon.session.samples.frame_table import FrameTable

_Stack = tuple[int, ...]


def returned_gradients(updates: Set[_Stack], frames: FrameTable) -> set[_Stack]:
    """Which of the stacks in backward, or in an optimizer's step, are in such a pass; none where they all are.

    Where nothing else trains they are what does.
    """
    found = {stack for stack in updates if frames.returns_gradients(stack)}
    return found if found != updates else set()
