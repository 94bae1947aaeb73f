"""Work of a training loop beside its model's forward pass: data that it makes, and evaluation.

Rollouts of an environment or of the model come between updates. Evaluation runs the model without gradients, by name
or after the update.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from tuimon.library_code import evaluates_by_name
from tuimon.session.stacks.frames import UPDATES, Block, Function
from tuimon.session.stacks.loop import NEARLY_ALL, Loop, LoopPlace, Position
from tuimon.session.stacks.samples import Sample

#: Functions that step an environment, or generate, to measure the model or to show what it does.
_EVALUATES = re.compile(r"(?i)eval|valid|test|demo|sample|print|log")


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
        if place.position > self._loop.path.position and (generates or place.is_librarys):
            return  # what is generated after backward, or played by a library, shows how the model does
        self._functions.add((own[0] if own else stack[making]).code)
        if not own and self._loop.is_above_backward(place):
            self._last = max(place.position, self._last)


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
        totals, apart, models, training = Counter[Block](), Counter[Block](), Counter[Block](), set[Block]()
        for sample in samples:
            is_after = not makes_data and loop.is_after(loop.at(sample.node))
            for block in {frame.block for frame in sample.node.outside_torch if frame.block is not None}:
                totals[block] += sample.count
                if sample.phase in UPDATES:
                    training.add(block)
                elif is_after or evaluates_by_name(block[2]):
                    apart[block] += sample.count
                    models[block] += sample.count if sample.phase == "forward" else 0
        evaluate = (block for block, n in apart.items() if models[block] >= _MODEL_SHARE * n)
        self._blocks = {block for block in evaluate if apart[block] >= NEARLY_ALL * totals[block]} - training

    def holds(self, sample: Sample) -> bool:
        """True if a sample, in neither backward nor an update, evaluates."""
        return any(frame.block in self._blocks for frame in sample.node.outside_torch)
