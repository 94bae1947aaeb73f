"""Evaluation that no DataLoader fetches for: runs of the model without gradients, in few of the steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tuimon.library_code import evaluates_by_name
from tuimon.session.samples.frame_table import Block, FrameTable, Function
from tuimon.session.samples.phases.evaluation.occasional import OccasionalBlocks
from tuimon.session.samples.phases.loop_path import UPDATES, CountedStack

#: Share of a block's samples that run a module, from which it runs the model: our choice; much of an evaluation may be
#: its batches, or its environment.
_MODEL_SHARE = 0.1
#: Of a function's runs of modules, the part in blocks that evaluate, from which all of it does, and of a block's
#: samples, the part in such a place. Measured in an evaluation of quick calls: 0.11 of its samples were read while the
#: stack changed, and show the model below another line.
_NEARLY_ALL = 0.8


class EvaluationBlocks:
    """Finds the samples of one training thread that evaluate.

    A block is what ``with torch.no_grad():`` holds, a function that is decorated so, or one of a library that is named
    as evaluation. A teacher, a target network and an average of the weights are without gradients too, but in every
    step. Where steps pass without the block, and it runs modules and trains nothing, it evaluates, with all of the
    function around it that is no part of training, as the loop is here::

        70  def evaluate():
        71      for x, y in batches(held_out):
        72          with torch.no_grad():
        73              out = model(x)
        74          right += hits(out, y)

    So may data be made for many steps: that comes before them each time, and where environments are stepped or text is
    generated in other places, too. What is not named as evaluation has to come after the update, or in a branch of an
    ``if``; beside rollouts nothing else is.
    """

    def __init__(
        self, samples: Sequence[CountedStack], frames: FrameTable, occasional: OccasionalBlocks, makes_data: bool
    ) -> None:
        """``makes_data``: whether there are rollouts."""
        self._frames = frames
        self._blocks: set[Block] = set()
        self._functions: set[Function] = set()
        if not occasional:
            return
        self._training: dict[Function, set[int]] = {}  # the lines with which functions lead to backward or the update
        for stack, _, boundary in samples:
            for number in self._before_torch(stack) if boundary in UPDATES else ():
                self._training.setdefault(self._frames.function(number), set()).add(frames[number].line)
        totals, models, apart = Counter[Block](), Counter[Block](), Counter[Block]()
        for stack, times, boundary in samples:
            blocks = dict.fromkeys((block for block in self._blocks_of(stack) if block in occasional), times)
            totals.update(blocks)
            models.update(blocks if boundary == "forward" else {})
            if boundary in ("rest", "forward"):  # batches from a DataLoader are what markers count
                apart.update({block: times for block in blocks if self._is_apart(stack, block, makes_data)})
        self._blocks = {
            block
            for block, total in totals.items()
            if models[block] >= _MODEL_SHARE * total and apart[block] >= _NEARLY_ALL * total
        }
        if self._blocks:
            self._note_functions(samples)

    def _is_apart(self, stack: Sequence[int], block: Block, makes_data: bool) -> bool:
        """Whether a block is named as evaluation, or is in a branch or after the update, where data for that is not."""
        if evaluates_by_name(block[2]):
            return True
        path = [number for number in self._before_torch(stack) if self._frames.function(number) in self._training]
        if makes_data or not path:
            return False
        frame, lines = self._frames[path[-1]], self._training[self._frames.function(path[-1])]
        if frame.branch is not None and not any(frame.branch[0] <= line <= frame.branch[1] for line in lines):
            return True
        return frame.line > max(lines)

    def holds(self, stack: Sequence[int]) -> bool:
        """Whether a stack, in neither backward nor an update, evaluates."""
        if not self._blocks:
            return False
        if any(block in self._blocks for block in self._blocks_of(stack)):
            return True
        return any(self._frames.function(number) in self._functions for number in self._before_torch(stack))

    def _note_functions(self, samples: Sequence[CountedStack]) -> None:
        """The functions around the blocks in which nothing else runs modules."""
        inside, runs = Counter[Function](), Counter[Function]()
        for stack, times, boundary in samples:
            around = {self._frames.function(n) for n in self._before_torch(stack)} - self._training.keys()
            runs.update(dict.fromkeys(around if boundary == "forward" else (), times))
            own = self._function_of_block(stack)
            if own in around and boundary == "forward":
                inside[own] += times
        self._functions = {function for function, times in inside.items() if times >= _NEARLY_ALL * runs[function]}

    def _function_of_block(self, stack: Sequence[int]) -> Function | None:
        outside = list(self._before_torch(stack))
        found = (n for n in outside if (block := self._frames.block(n)) is not None and block in self._blocks)
        return next((self._frames.function(number) for number in found), None)

    def _blocks_of(self, stack: Sequence[int]) -> Iterator[Block]:
        blocks = (self._frames.block(number) for number in self._before_torch(stack))
        return (block for block in blocks if block is not None)

    def _before_torch(self, stack: Sequence[int]) -> Iterator[int]:
        """The frames from the root to the first boundary or module."""
        for number in stack:
            if self._frames.kind(number) not in ("none", "import"):
                return
            yield number
