"""An update of the parameters that is written in the user's code."""

from __future__ import annotations

from itertools import takewhile

from tuimon.code_origin import is_library_file
from tuimon.diagnosis.evidence.samples import StackSample, ThreadSamples
from tuimon.records import Place


def own_update_share(update: ThreadSamples, place: Place) -> float:
    """The share of the samples in which the function of a place updates by itself, or by operations of torch.

    An optimizer of torch's or of another library, which it calls, is not its own.
    """
    function = (place.file, place.function)
    found = sum(sample.count for sample in update.stacks if function in sample.functions and _is_own(sample, function))
    return found / update.total if update.total else 0.0


def _is_own(sample: StackSample, function: tuple[str, str]) -> bool:
    below = takewhile(
        lambda pair: (pair[0].file, pair[0].function) != function,
        zip(reversed(sample.frames), reversed(sample.kinds), strict=True),
    )
    return not any(kind == "optimizer" or is_library_file(frame.file) for frame, kind in below)
