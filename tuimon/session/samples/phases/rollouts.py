"""Rollouts: training data made between updates, by stepping an environment or by generating with the model."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from tuimon.library_code import is_generation
from tuimon.session.samples.frame_table import FrameTable, Function
from tuimon.session.samples.phases.loop_path import CountedStack

#: Functions that step an environment, or generate, to measure the model or to show what it does.
_EVALUATES = re.compile(r"(?i)eval|valid|test|demo|sample|print|log")
#: Of what a closure does besides backward, the part that is computing the loss: our choice.
_NEARLY_ALL = 0.9
_OPAQUE: Function = ("", "")  # what is not searched: the model, and what makes data


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
        """Whether samples have shown where data is made."""
        return bool(self._functions or self._last_line)

    def holds(self, stack: Sequence[int]) -> bool:
        """Whether a stack, in neither backward nor an update, is part of a rollout."""
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
