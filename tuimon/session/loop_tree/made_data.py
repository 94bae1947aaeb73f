"""Training data that the training makes: rollouts of an environment or of the model, and modules that make the batch.

Rollouts come between updates. Such modules change a batch before a model sees it, and nothing in them is trained.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from tuimon.code_origin import is_torch
from tuimon.library_code import is_generation
from tuimon.session.loop_tree.frame_table import FrameTable, Function
from tuimon.session.loop_tree.order import CountedStack

#: Functions that step an environment, or generate, to measure the model or to show what it does.
_EVALUATES = re.compile(r"(?i)eval|valid|test|demo|sample|print|log")
#: Of what a closure does besides backward, the part that is computing the loss: our choice.
_NEARLY_ALL = 0.9
_OPAQUE: Function = ("", "")  # what is not searched: the model, and what makes data
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


class Rollouts:
    """Finds the samples in which data is made, given the samples of one training thread.

    The functions that backward and the update are called through are the path of training. Where a stack that steps an
    environment leaves this path, the function it calls is a rollout, with all that it does besides: the policy, the
    buffer, the copies. Here that is ``rollout``::

        44  states, rewards = rollout(env, policy, 16)
        45  loss = cost(policy(states), rewards)
        46  loss.backward()

    Where the loop itself steps the environment, its lines up to there are the rollout, if backward comes later. The
    same goes for the function that computes the loss in a closure of the optimizer, such as ``training_step``. What a
    model steps in its forward pass is no rollout.
    """

    def __init__(self, samples: Sequence[CountedStack], frames: FrameTable) -> None:
        self._frames = frames
        self._backward_line: dict[Function, int] = {}  # of the functions on the path, their first line in backward
        self._functions: set[Function] = set()
        self._last_line: dict[Function, int] = {}  # of functions on the path that make the data themselves
        made = [sample.stack for sample in samples if frames.maker_depth(sample.stack) is not None]
        if not made:
            return
        for stack, _, boundary in samples:
            if boundary in ("backward", "optimizer"):
                self._note_path(stack)
        self._note_loss([sample for sample in samples if frames.is_in_closure(sample.stack)])
        for stack in made:
            self._note_rollout(stack)

    @property
    def are_known(self) -> bool:
        """True if samples have shown where data is made."""
        return bool(self._functions or self._last_line)

    def holds(self, stack: Sequence[int]) -> bool:
        """True if a stack, in neither backward nor an update, is part of a rollout."""
        if not self.are_known:
            return False
        stack = self._frames.outline(stack)
        functions = [self._frames.function(number) for number in stack]
        outside_model = takewhile(lambda depth: self._frames.kind(stack[depth]) != "module", range(len(stack)))
        if any(functions[depth] in self._functions for depth in outside_model):
            return True
        depth = self._leaves_path(stack)
        return depth > 0 and self._frames[stack[depth - 1]].line <= self._last_line.get(functions[depth - 1], 0)

    def _note_path(self, stack: Sequence[int]) -> None:
        for number in stack:
            if self._frames.kind(number) in ("backward", "optimizer"):
                return
            line, function = self._frames[number].line, self._frames.function(number)
            self._backward_line[function] = min(line, self._backward_line.get(function, line))

    def _note_loss(self, in_closure: Sequence[CountedStack]) -> None:
        """The path also holds the functions through which a closure computes the loss, without its backward.

        As long as nearly all that the closure does besides is in one function.
        """
        while True:
            called = Counter[Function]()
            for stack, times, boundary in in_closure:
                depth = self._leaves_path(stack)
                if boundary not in ("backward", "optimizer") and 0 < depth < len(stack):
                    opaque = self._frames.kind(stack[depth]) == "module" or self._frames.maker_depth(stack) == depth
                    called[_OPAQUE if opaque else self._frames.function(stack[depth])] += times
            (function, times), *_ = called.most_common(1) or [(_OPAQUE, 0)]
            if function == _OPAQUE or times < _NEARLY_ALL * called.total():
                return
            self._backward_line[function] = sys.maxsize

    def _note_rollout(self, stack: Sequence[int]) -> None:
        depth, making = self._leaves_path(stack), self._frames.maker_depth(stack)
        if making is None:
            return
        if not self._backward_line:  # updates are too short to be sampled: what makes the data is known nevertheless
            made = self._frames[stack[making]]
            if not is_generation(made.file, made.function):
                self._functions.add(self._frames.function(stack[making]))
            return
        if not 0 < depth <= making:
            return
        between = stack[depth:making]
        if any(_EVALUATES.search(self._frames[n].function) or self._frames.kind(n) == "module" for n in between):
            return
        caller = self._frames.function(stack[depth - 1])
        line, backward_line = self._frames[stack[depth - 1]].line, self._backward_line[caller]
        made = self._frames[stack[making]]
        if is_generation(made.file, made.function) and line > backward_line:
            return  # what is generated after the update shows how the model does
        self._functions.add(self._frames.function(stack[depth]))
        if depth == making and line < backward_line:
            self._last_line[caller] = max(line, self._last_line.get(caller, 0))

    def _leaves_path(self, stack: Sequence[int]) -> int:
        """The first frame that is not of a function on the path of training."""
        functions = (self._frames.function(number) for number in stack)
        return next((i for i, f in enumerate(functions) if f not in self._backward_line), len(stack))


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
