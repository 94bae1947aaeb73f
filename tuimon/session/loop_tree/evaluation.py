"""Evaluation that no DataLoader fetches for: runs of the model without gradients, by name or after the update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuimon.library_code import evaluates_by_name
from tuimon.session.loop_tree.order import leading_lines
from tuimon.session.loop_tree.roles import Block
from tuimon.session.loop_tree.stacks import NEARLY_ALL, StackSample

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

    def __init__(self, samples: Sequence[StackSample], makes_data: bool) -> None:
        """``makes_data``: whether there are rollouts."""
        self._blocks: set[Block] = set()
        self._training = leading_lines(samples)
        totals, models, apart = Counter[Block](), Counter[Block](), Counter[Block]()
        for sample in samples:
            inside = {frame.block for frame in sample.outside_torch if frame.block is not None}
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

    def _is_apart(self, sample: StackSample, block: Block, makes_data: bool) -> bool:
        """True if a block is named as evaluation, or comes after the update: its data and teachers do not."""
        if evaluates_by_name(block[2]):
            return True
        path = [frame for frame in sample.outside_torch if frame.code in self._training]
        if makes_data or not path:
            return False
        frame, lines = path[-1], self._training[path[-1].code]
        return frame.line > max(lines)

    def holds(self, sample: StackSample) -> bool:
        """True if a sample, in neither backward nor an update, evaluates."""
        if not self._blocks:
            return False
        return any(frame.block in self._blocks for frame in sample.outside_torch)
