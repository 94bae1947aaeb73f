"""What is done to a model or its optimizer outside the step: made, copied, loaded, its gradients cleared."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tuimon.session.samples.frame_table import FrameTable
from tuimon.session.samples.phases.loop_path import CountedStack
from tuimon.session.samples.phases.sample import Sample
from tuimon.torch_code import is_model_upkeep, is_parameter_copy


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
