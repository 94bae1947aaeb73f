"""Updates of the parameters that the program writes itself: ``p -= lr * p.grad``, which calls no optimizer's hook."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tuimon.records import Frame
from tuimon.session.samples.frame_table import FrameTable, Function
from tuimon.session.samples.phases.loop_path import UPDATES, CountedStack

#: What is changed in place, or set as a parameter's data, by a gradient: ``m.mul_(0.9).add_(p.grad)``,
#: ``p.data += -lr * p.grad``. Not the gradient itself, as ``p.grad.mul_(scale)`` clips it.
_UPDATE = re.compile(r"(?:\w_\(|[-+]=|\.data\s*=(?!=)).*\.grad\b")
#: What only looks at a gradient: ``total += p.grad.norm() ** 2``.
_STATISTIC = re.compile(r"\.grad(?:\.data|\.detach\(\))?\.(?:norm|abs|max|min|mean|std|var|sum|item)\b")
#: What goes down in a block without gradients, where these have names of their own: ``p -= lr * g``.
_DESCENT = re.compile(
    r"\b(?:lr|learning_rate|step_size)\b|[\w\])]\s*-=|\.sub_\(|\.add_\(.*alpha=-|\.addc\w+_\(.*value=-", re.IGNORECASE
)
#: What goes down where gradients are only ever returned (``torch.func.grad``): parameters need no such block there, so
#: that ``x -= x.mean()`` may be anything.
_RETURNED_DESCENT = re.compile(
    r"\b(?:lr|learning_rate|step_size)\b(?!\s*=)|\.add_\(.*alpha=-|\.addc\w+_\(.*value=-", re.IGNORECASE
)


def updates_by_gradient(source: str) -> bool:
    """Whether a line of the user's changes something by a parameter's gradient, and not the gradient."""
    return _UPDATE.search(source) is not None and _STATISTIC.search(source) is None


def _updates(frame: Frame, returned: bool) -> bool:
    """``returned``: whether every backward pass returns its gradients, so that no parameter has any."""
    if updates_by_gradient(frame.source):
        return True
    descent = _DESCENT if frame.no_grad is not None else _RETURNED_DESCENT if returned and frame.user else None
    return descent is not None and descent.search(frame.source) is not None


class OwnUpdates:
    """Which stacks are in such an update: at one of its lines, or in a function that has one and calls no backward.

    Where there is an optimizer as well there are none: what else changes by gradients is beside the training.
    """

    def __init__(self, samples: Sequence[CountedStack], frames: FrameTable, has_optimizer: bool = False) -> None:
        """``has_optimizer``: whether markers show one; a cheap one may be in no sample."""
        self._frames = frames
        self._lines: set[int] = set()
        self._functions: set[Function] = set()
        if has_optimizer or any(frames.kind(number) == "optimizer" for number in _numbers(samples)):
            return
        passes = [sample.stack for sample in samples if sample.boundary == "backward"]
        returned = bool(passes) and all(map(frames.returns_gradients, passes))
        self._lines = {number for number in _numbers(samples) if _updates(frames[number], returned)}
        loop = _numbers(sample for sample in samples if sample.boundary in UPDATES)
        self._functions = {frames.function(n) for n in self._lines} - {frames.function(n) for n in loop}

    def holds(self, stack: Sequence[int]) -> bool:
        """Whether this stack is in such an update."""
        if not self._lines:
            return False
        return any(n in self._lines or self._frames.function(n) in self._functions for n in stack)


def _numbers(samples: Iterable[CountedStack]) -> set[int]:
    return {number for sample in samples for number in sample.stack}
