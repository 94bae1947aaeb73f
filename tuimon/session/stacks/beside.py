"""Work of a training loop beside its model's forward pass: data that it makes, evaluation, changes to the model.

Rollouts of an environment or of the model come between updates. Modules that make the batch change it before a model
sees it, and are not trained. Evaluation runs the model without gradients, by name or after the update. ``p -= lr *
p.grad`` calls no optimizer's hook; a model is made, copied or loaded, and its gradients are cleared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from tuimon.code_origin import is_torch
from tuimon.library_code import evaluates_by_name
from tuimon.records import Frame
from tuimon.session.stacks.frames import UPDATES, Block, Function, KnownFrame
from tuimon.session.stacks.loop import NEARLY_ALL, Loop, LoopPlace, Position
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import Stack

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

    def __init__(self, samples: Sequence[Sample], loop: Loop) -> None:
        self._loop = loop
        self._functions: set[Function] = set()
        self._last: Position = ()  # of the loop's own lines that make the data
        for sample in samples:
            if sample.node.makes_data:
                self._note_rollout(sample)

    @property
    def are_known(self) -> bool:
        """True if samples have shown where data is made."""
        return bool(self._functions or self._last)

    def holds(self, sample: Sample, place: LoopPlace | None) -> bool:
        """True if a sample, in neither backward nor an update, is part of a rollout."""
        if not self.are_known:
            return False
        stack = sample.node.frames
        if any(frame.code in self._functions for frame in takewhile(lambda frame: frame.kind != "module", stack)):
            return True
        return place is not None and place.position <= self._last

    def _note_rollout(self, sample: Sample) -> None:
        stack, making = sample.node.frames, sample.node.maker_depth
        if making is None:
            return
        generates = "generates" in stack[making].roles
        if not self._loop.is_known:  # updates are too short to be sampled: what makes the data is known nevertheless
            self._functions |= set() if generates else {stack[making].code}
            return
        place = self._loop.at(sample.node)
        if place is None or len(place.inside) < len(stack) - making:
            return
        called = place.inside[: len(place.inside) - (len(stack) - making)]
        if any(_EVALUATES.search(frame.function) or frame.kind == "module" for frame in called):
            return
        own = [frame for frame in called if frame.user]
        if generates and place.position > self._loop.path.position:
            return  # what is generated after the update shows how the model does
        self._functions.add((own[0] if own else stack[making]).code)
        if not own and self._loop.is_above_backward(place):
            self._last = max(place.position, self._last)


class Augmentations:
    """Finds the runs of modules that are no part of the forward pass, given the samples of one training thread.

    They are a library's augmentations, or called by such a name or in a function of such a name, and no sample shows a
    layer with parameters in them: a teacher, a frozen encoder and a loss are forward. So here line 12, while some other
    line runs a model::

        12  images = augment(images)
        13  loss = cost(model(images), labels)
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        running = [(s, depth) for s in samples if s.phase == "forward" and (depth := _module_depth(s))]
        found = {s.node.frames[depth - 1] for s, depth in running if _is_augmentation(s.node.frames, depth)}
        with_layers = {s.node.frames[depth - 1] for s, depth in running if s.node.has("layer")} & found
        models = {s.node.frames[depth - 1] for s, depth in running} - found
        self._callers = found - with_layers if models or with_layers else set()  # frames of the lines that run one

    def without_module(self, sample: Sample) -> Sample | None:
        """A sample of one as if it ran no module, without torch's frames of the call; None for any other sample."""
        depth = _module_depth(sample) if self._callers and sample.phase == "forward" else 0
        if not depth or sample.node.frames[depth - 1] not in self._callers:
            return None
        node = sample.node
        return sample.at("rest", node.trie.node((*node.ids[:depth], *node.ids[_below_torch(node.frames, depth) :])))


def _module_depth(sample: Sample) -> int:
    """The depth at which the outermost module is called; 0 where nothing shows by whom."""
    return sample.node.kinds.index("module") if sample.node.has("module") else 0


def _below_torch(stack: Stack, depth: int) -> int:
    """The depth of the first frame of the outermost module's call that is not torch's."""
    return next((i for i in range(depth, len(stack)) if not is_torch(stack[i].file)), len(stack))


def _is_augmentation(stack: Stack, depth: int) -> bool:
    line = stack[depth - 1]
    outermost = _CALLED.match(line.source)
    if line.user and (_NAME.search(line.function) or (outermost is not None and _NAME.search(outermost[1]))):
        return True
    below = _below_torch(stack, depth)
    return below < len(stack) and _LIBRARY_FILE.search(stack[below].file) is not None


#: Share of a block's samples that run a module, from which it runs the model: our choice; much of an evaluation may be
#: its batches, or its environment.
_MODEL_SHARE = 0.1


class EvaluationBlocks:
    """Finds the samples of one training thread that evaluate.

    A block is what ``with torch.no_grad():`` holds, a function that is decorated so, or one of a library that is named
    as evaluation. A teacher and a target network are without gradients too, but before the update. If a block comes
    after it, or is named as evaluation, and it runs modules and trains nothing, it evaluates, as the loop is here::

        70  def evaluate():
        71      with torch.no_grad():
        72          for x, y in batches(held_out):
        73              out = model(x)

    Beside rollouts only blocks named as evaluation evaluate: one without gradients may choose what is done.
    """

    def __init__(self, samples: Sequence[Sample], loop: Loop, makes_data: bool) -> None:
        """``makes_data``: whether there are rollouts."""
        self._blocks: set[Block] = set()
        self._loop = loop
        totals, models, apart = Counter[Block](), Counter[Block](), Counter[Block]()
        for sample in samples:
            inside = {frame.block for frame in sample.node.outside_torch if frame.block is not None}
            blocks = dict.fromkeys(inside, sample.count)
            totals.update(blocks)
            models.update(blocks if sample.phase == "forward" else {})
            if sample.phase in ("rest", "forward"):  # batches from a DataLoader are what markers count
                apart.update({block: n for block, n in blocks.items() if self._is_apart(sample, block, makes_data)})
        self._blocks = {
            block
            for block, total in totals.items()
            if models[block] >= _MODEL_SHARE * total and apart[block] >= NEARLY_ALL * total
        }

    def _is_apart(self, sample: Sample, block: Block, makes_data: bool) -> bool:
        """True if a block is named as evaluation, or comes after the update: its data and teachers do not."""
        if evaluates_by_name(block[2]):
            return True
        return not makes_data and self._loop.is_after(self._loop.at(sample.node))

    def holds(self, sample: Sample) -> bool:
        """True if a sample, in neither backward nor an update, evaluates."""
        if not self._blocks:
            return False
        return any(frame.block in self._blocks for frame in sample.node.outside_torch)


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

    def __init__(self, samples: Sequence[Sample], has_optimizer: bool = False) -> None:
        """``has_optimizer``: whether markers show one; a cheap one may be in no sample."""
        self._lines: set[KnownFrame] = set()
        self._functions: set[Function] = set()
        if has_optimizer or any(sample.node.has("optimizer") for sample in samples):
            return
        every = {frame for sample in samples for frame in sample.node.frames}
        self._lines = {frame for frame in every if _updates(frame)}
        loop = {frame.code for sample in samples if sample.phase in UPDATES for frame in sample.node.frames}
        self._functions = {frame.code for frame in self._lines} - loop

    def holds(self, stack: Stack) -> bool:
        """True if this stack is in such an update."""
        return bool(self._lines) and any(f in self._lines or f.code in self._functions for f in stack)
