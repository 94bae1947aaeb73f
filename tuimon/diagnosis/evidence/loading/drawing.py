"""The drawing of indices, which the training thread does itself in a fetch, whoever makes the batches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tuimon.diagnosis.evidence.lines import HotFunction, hottest_place
from tuimon.diagnosis.evidence.places.callees import with_callees
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, StackSample, ThreadSamples
from tuimon.diagnosis.threshold import Threshold

FEW_SAMPLES = Threshold(
    5,
    "samples of the wait for data of which none draws indices, from which that is not the cause",
    "our choice: of more than half, one in five is seen in 97 of 100 cases (1 - 0.5**5)",
)

#: The DataLoader's function that draws the indices of a batch.
_DRAWS = "_next_index"


def draws_indices(data: ThreadSamples) -> Callable[[StackSample], bool]:
    """True if a sample of the data phase draws indices: it is in that function, or in what others show it to call.

    A stack that was read while it changed may lack the DataLoader's own frames.
    """
    called = {
        (frame.file, frame.function)
        for sample in data.stacks
        for caller, frame in pairwise(sample.frames)
        if caller.function == _DRAWS
    }
    return lambda sample: any(
        frame.function == _DRAWS or (frame.file, frame.function) in called for frame in sample.frames
    )


def drawing_function(data: ThreadSamples) -> HotFunction | None:
    """The user's function that draws indices in most samples; its share is of all those of the data phase."""
    draws = draws_indices(data)
    return with_callees(hottest_place((s.place if draws(s) else None, s.count) for s in data.stacks), data)


def may_draw(data: ThreadSamples) -> bool:
    """True if the fetch may draw indices most of the time, as far as few samples show."""
    if data.total >= MIN_SAMPLES:
        return False
    return data.total < FEW_SAMPLES or any(map(draws_indices(data), data.stacks))
