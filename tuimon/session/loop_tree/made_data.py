"""Training data that the training makes: rollouts of an environment or of the model, and modules that make the batch.

Rollouts come between updates. Modules that make the batch change it before a model sees it, and are not trained.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from tuimon.code_origin import is_torch
from tuimon.session.loop_tree.frame_table import Function
from tuimon.session.loop_tree.order import leading_lines
from tuimon.session.loop_tree.stacks import Stack, StackSample

#: Functions that step an environment, or generate, to measure the model or to show what it does.
_EVALUATES = re.compile(r"(?i)eval|valid|test|demo|sample|print|log")
#: A library's modules that change batches: ``/…/kornia/augmentation/base.py``, ``/…/transforms/v2/_color.py``.
_LIBRARY_FILE = re.compile(r"-packages/[\w/]*/(?:augmentations?|transforms)(?:/|\.py$)")
#: Names of such modules and of functions that run them. A "transform" alone may well be a model that is trained.
_NAME = re.compile(
    r"(?i)(?:^|_)(?:\w*augment\w*|augs?|pre_?process\w*|transforms|tfms|(?:color_?)?jitter|(?:random_?)?crop|mix_?up|cut_?mix)$"
)
#: The call that a line makes of all others on it: of ``x = self.augment(load(y))`` it is ``augment``.
_CALLED = re.compile(r"\s*(?:return\s+|[^()=]+=\s*)?(?:\w+\.)*(\w+)\(")


class Rollouts:
    """Finds the samples in which data is made, given the samples of one training thread.

    The functions that backward and the update are called through are the path of training. A stack that steps an
    environment leaves this path: the function that it calls there is a rollout, with all that it does besides: the
    policy, the buffer, the copies. Here that is ``rollout``::

        44  states, rewards = rollout(env, policy, 16)
        45  loss = cost(policy(states), rewards)
        46  loss.backward()

    If the loop itself steps the environment, its lines up to there are the rollout, if backward comes later. The
    same goes for the function that computes the loss in a closure of the optimizer, such as ``training_step``. An
    environment that a model steps in its forward pass is no rollout.
    """

    def __init__(self, samples: Sequence[StackSample]) -> None:
        self._backward_line: dict[Function, int] = {}  # of the functions on the path, their first line in backward
        self._functions: set[Function] = set()
        self._last_line: dict[Function, int] = {}  # of functions on the path that make the data themselves
        made = [sample for sample in samples if sample.makes_data]
        if not made:
            return
        self._backward_line = {function: min(lines) for function, lines in leading_lines(samples).items()}
        for sample in made:
            self._note_rollout(sample)

    @property
    def are_known(self) -> bool:
        """True if samples have shown where data is made."""
        return bool(self._functions or self._last_line)

    def holds(self, sample: StackSample) -> bool:
        """True if a sample, in neither backward nor an update, is part of a rollout."""
        if not self.are_known:
            return False
        stack = sample.outline
        if any(frame.code in self._functions for frame in takewhile(lambda frame: frame.kind != "module", stack)):
            return True
        depth = self._leaves_path(stack)
        return depth > 0 and stack[depth - 1].line <= self._last_line.get(stack[depth - 1].code, 0)

    def _note_rollout(self, sample: StackSample) -> None:
        stack, making = sample.frames, sample.maker_depth
        if making is None:
            return
        made = stack[making]
        generates = "generates" in made.roles
        if not self._backward_line:  # updates are too short to be sampled: what makes the data is known nevertheless
            self._functions |= set() if generates else {made.code}
            return
        depth = self._leaves_path(stack)
        if not 0 < depth <= making:
            return
        if any(_EVALUATES.search(frame.function) or frame.kind == "module" for frame in stack[depth:making]):
            return
        caller = stack[depth - 1]
        backward_line = self._backward_line[caller.code]
        if generates and caller.line > backward_line:
            return  # what is generated after the update shows how the model does
        self._functions.add(stack[depth].code)
        if depth == making and caller.line < backward_line:
            self._last_line[caller.code] = max(caller.line, self._last_line.get(caller.code, 0))

    def _leaves_path(self, stack: Stack) -> int:
        """The first frame that is not of a function on the path of training."""
        return next((i for i, frame in enumerate(stack) if frame.code not in self._backward_line), len(stack))


class Augmentations:
    """Finds the runs of modules that are no part of the forward pass, given the samples of one training thread.

    They are a library's augmentations, or called by such a name or in a function of such a name, and no sample shows a
    layer with parameters in them: a teacher, a frozen encoder and a loss are forward. So here line 12, while some other
    line runs a model::

        12  images = augment(images)
        13  loss = cost(model(images), labels)
    """

    def __init__(self, samples: Sequence[StackSample]) -> None:
        running = [(s, depth) for s in samples if s.phase == "forward" and (depth := _module_depth(s))]
        found = {s.frames[depth - 1] for s, depth in running if _is_augmentation(s.frames, depth)}
        with_layers = {s.frames[depth - 1] for s, depth in running if s.has("layer")} & found
        models = {s.frames[depth - 1] for s, depth in running} - found
        self._callers = found - with_layers if models or with_layers else set()  # frames of the lines that run one

    def without_module(self, sample: StackSample) -> StackSample | None:
        """A sample of one as if it ran no module, without torch's frames of the call; None for any other sample."""
        depth = _module_depth(sample) if self._callers and sample.phase == "forward" else 0
        if not depth or sample.frames[depth - 1] not in self._callers:
            return None
        return sample.at("rest", (*sample.frames[:depth], *_called(sample.frames, depth)))


def _module_depth(sample: StackSample) -> int:
    """The depth at which the outermost module is called; 0 where nothing shows by whom."""
    return sample.kinds.index("module") if sample.passes("module") else 0


def _called(stack: Stack, depth: int) -> Stack:
    """The frames of the outermost module's call from the first on that is not torch's."""
    return stack[next((i for i in range(depth, len(stack)) if not is_torch(stack[i].file)), len(stack)) :]


def _is_augmentation(stack: Stack, depth: int) -> bool:
    line = stack[depth - 1]
    outermost = _CALLED.match(line.source)
    if line.user and (_NAME.search(line.function) or (outermost is not None and _NAME.search(outermost[1]))):
        return True
    called = _called(stack, depth)
    return bool(called) and _LIBRARY_FILE.search(called[0].file) is not None
