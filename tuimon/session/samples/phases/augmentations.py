"""Modules that make the batch: they change it before a model sees it, and nothing in them is trained."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuimon.code_origin import is_torch
from tuimon.session.samples.frame_table import FrameTable
from tuimon.session.samples.phases.loop_path import CountedStack

#: Layers with parameters.
_LAYER_FILE = re.compile(r"torch/nn/modules/(?:conv|linear|rnn|sparse|batchnorm|normalization|transformer)\.py$")
_ATTENTION = "multi_head_attention_forward"
#: A library's modules that change batches: ``/…/kornia/augmentation/base.py``, ``/…/transforms/v2/_color.py``.
_LIBRARY_FILE = re.compile(r"-packages/[\w/]*/(?:augmentations?|transforms)(?:/|\.py$)")
#: What such modules, and functions that run them, are named. A "transform" alone may well be a model that is trained.
_NAME = re.compile(
    r"(?i)(?:^|_)(?:\w*augment\w*|augs?|pre_?process\w*|transforms|tfms|(?:color_?)?jitter|(?:random_?)?crop|mix_?up|cut_?mix)$"
)
#: The call that a line makes of all others on it: of ``x = self.augment(load(y))`` it is ``augment``.
_CALLED = re.compile(r"\s*(?:return\s+|[^()=]+=\s*)?(?:\w+\.)*(\w+)\(")


class Augmentations:
    """Finds the runs of modules that are no part of the forward pass, given the samples of one training thread.

    They are a library's augmentations, or called by such a name or in a function of such a name, and no sample shows a
    layer with parameters in them: a teacher, a frozen encoder and a loss are forward. So here line 12, while some other
    line runs a model::

        12  images = augment(images)
        13  loss = cost(model(images), labels)
    """

    def __init__(self, samples: Sequence[CountedStack], frames: FrameTable) -> None:
        self._frames = frames
        running = [(stack, depth) for stack, _, at in samples if at == "forward" and (depth := self._depth(stack))]
        found = {stack[depth - 1] for stack, depth in running if self._is_augmentation(stack, depth)}
        with_layers = {
            stack[depth - 1] for stack, depth in running if stack[depth - 1] in found and self._has_layer(stack)
        }
        models = {stack[depth - 1] for stack, depth in running} - found
        self._callers = found - with_layers if models or with_layers else set()  # frames of the lines that run one

    def without_module(self, sample: CountedStack) -> CountedStack | None:
        """A sample of one as if it ran no module, without torch's frames of the call; None for any other sample."""
        depth = self._depth(sample.stack) if self._callers and sample.boundary == "forward" else 0
        if not depth or sample.stack[depth - 1] not in self._callers:
            return None
        return CountedStack((*sample.stack[:depth], *self._called(sample.stack, depth)), sample.times, "rest")

    def _depth(self, stack: Sequence[int]) -> int:
        """Where the outermost module is called; 0 where nothing shows by whom."""
        return next((depth for depth, number in enumerate(stack) if self._frames.kind(number) == "module"), 0)

    def _called(self, stack: Sequence[int], depth: int) -> Sequence[int]:
        """The frames of the outermost module's call from the first on that is not torch's."""
        return stack[
            next((i for i in range(depth, len(stack)) if not is_torch(self._frames[stack[i]].file)), len(stack)) :
        ]

    def _is_augmentation(self, stack: Sequence[int], depth: int) -> bool:
        line = self._frames[stack[depth - 1]]
        outermost = _CALLED.match(line.source)
        if line.user and (_NAME.search(line.function) or (outermost is not None and _NAME.search(outermost[1]))):
            return True
        called = self._called(stack, depth)
        return bool(called) and _LIBRARY_FILE.search(self._frames[called[0]].file) is not None

    def _has_layer(self, stack: Sequence[int]) -> bool:
        frames = (self._frames[number] for number in stack)
        return any(_LAYER_FILE.search(frame.file) or frame.function == _ATTENTION for frame in frames)
