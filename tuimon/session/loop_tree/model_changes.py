"""Changes to a model beside its optimizer: updates that the program writes itself, and upkeep outside the step.

``p -= lr * p.grad`` calls no optimizer's hook. A model is made, copied or loaded, and its gradients are cleared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tuimon.records import Frame
from tuimon.session.loop_tree.frame_table import FrameTable, Function
from tuimon.session.loop_tree.order import UPDATES, CountedStack
from tuimon.session.loop_tree.sample import Sample
from tuimon.torch_code import is_model_upkeep, is_parameter_copy

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
    """True if a line of the user's changes something by a parameter's gradient, and not the gradient."""
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
        """True if this stack is in such an update."""
        if not self._lines:
            return False
        return any(n in self._lines or self._frames.function(n) in self._functions for n in stack)


def _numbers(samples: Iterable[CountedStack]) -> set[int]:
    return {number for sample in samples for number in sample.stack}


class ModelUpkeep:
    """Which stacks are at it: in torch's code for that, or at a line that copies a model.

    Where federated clients each get a copy of the model, it comes before their forward passes as a batch does, but is
    none. Most samples of a copy are in Python's ``copy`` alone; a few in the parameters show of what it is.
    """

    def __init__(self, samples: Sequence[CountedStack], frames: FrameTable) -> None:
        self._frames = frames
        self._copying = {
            frames.innermost_user(sample.stack)
            for sample in samples
            if any(is_parameter_copy(*frames.function(number)) for number in sample.stack)
        }

    def relabeled(self, sample: Sample) -> Sample:
        """The sample, as side work if it is at it and counts as data outside a fetch."""
        if sample.phase != "data" or any(self._frames.kind(number) == "fetch" for number in sample.stack):
            return sample
        return replace(sample, phase="other", unsure=False) if self._holds(sample.stack) else sample

    def _holds(self, stack: Sequence[int]) -> bool:
        inner = self._frames.innermost_user(stack)
        if inner is None:
            return False
        below = stack[stack.index(inner) + 1 :]
        return inner in self._copying or any(is_model_upkeep(*self._frames.function(number)) for number in below)
