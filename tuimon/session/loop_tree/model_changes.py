"""Changes to a model beside its optimizer: updates that the program writes itself, and upkeep outside the step.

``p -= lr * p.grad`` calls no optimizer's hook. A model is made, copied or loaded, and its gradients are cleared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuimon.records import Frame
from tuimon.session.loop_tree.frame_table import Function, KnownFrame
from tuimon.session.loop_tree.stacks import UPDATES, Stack, StackSample

#: A change in place, or of a parameter's data, by a gradient: ``m.mul_(0.9).add_(p.grad)``,
#: ``p.data += -lr * p.grad``. Not the gradient itself, as ``p.grad.mul_(scale)`` clips it.
_UPDATE = re.compile(r"(?:\w_\(|[-+]=|\.data\s*=(?!=)).*\.grad\b")
#: A line that only looks at a gradient: ``total += p.grad.norm() ** 2``.
_STATISTIC = re.compile(r"\.grad(?:\.data|\.detach\(\))?\.(?:norm|abs|max|min|mean|std|var|sum|item)\b")
#: A descent in a block without gradients, where these have names of their own: ``p -= lr * g``.
_DESCENT = re.compile(
    r"\b(?:lr|learning_rate|step_size)\b|[\w\])]\s*-=|\.sub_\(|\.add_\(.*alpha=-|\.addc\w+_\(.*value=-", re.IGNORECASE
)


def updates_by_gradient(source: str) -> bool:
    """True if a line of the user's changes something by a parameter's gradient, and not the gradient."""
    return _UPDATE.search(source) is not None and _STATISTIC.search(source) is None


def _updates(frame: Frame) -> bool:
    if updates_by_gradient(frame.source):
        return True
    return frame.no_grad is not None and _DESCENT.search(frame.source) is not None


class OwnUpdates:
    """Which stacks are in such an update: at one of its lines, or in a function that has one and calls no backward.

    If there is an optimizer as well there are none: what else changes by gradients is beside the training.
    """

    def __init__(self, samples: Sequence[StackSample], has_optimizer: bool = False) -> None:
        """``has_optimizer``: whether markers show one; a cheap one may be in no sample."""
        self._lines: set[KnownFrame] = set()
        self._functions: set[Function] = set()
        if has_optimizer or any(sample.passes("optimizer") for sample in samples):
            return
        every = {frame for sample in samples for frame in sample.frames}
        self._lines = {frame for frame in every if _updates(frame)}
        loop = {frame.code for sample in samples if sample.phase in UPDATES for frame in sample.frames}
        self._functions = {frame.code for frame in self._lines} - loop

    def holds(self, stack: Stack) -> bool:
        """True if this stack is in such an update."""
        return bool(self._lines) and any(f in self._lines or f.code in self._functions for f in stack)


def is_upkeep(sample: StackSample) -> bool:
    """True if a sample outside a fetch is in torch's code for upkeep of a model."""
    line = sample.user_line
    if sample.passes("fetch") or line is None:
        return False
    return any("upkeep" in frame.roles for frame in sample.frames[sample.frames.index(line) + 1 :])
