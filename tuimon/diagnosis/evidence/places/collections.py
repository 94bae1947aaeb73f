"""Which line calls Python's garbage collector, as samples show; an automatic collection has no line of its own."""

from __future__ import annotations

from collections import Counter

from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.samples import ThreadSamples
from tuimon.diagnosis.threshold import REPORTED
from tuimon.records import Place
from tuimon.session.loop_tree.stacks import StackSample
from tuimon.torch_code import collects_garbage


def collecting_line(samples: ThreadSamples) -> HotFunction | None:
    """The line with most samples in ``gc.collect()``: the user's, with the library's that it leads to; else None."""
    counts: Counter[tuple[Place, Place | None]] = Counter()
    for sample in samples.stacks:
        if is_collecting(sample):
            counts[_places(sample)] += sample.count
    if not counts:
        return None
    (place, library), count = counts.most_common(1)[0]
    return HotFunction(place, count / samples.total, count, library)


def sampled_collections(samples: ThreadSamples) -> float | None:
    """The share of the samples in steps that are in ``gc.collect()``; None where it is too small to be told."""
    share = samples.in_steps.share_where(is_collecting)
    return share if share is not None and share >= REPORTED else None


def without_collections(samples: ThreadSamples) -> ThreadSamples:
    """All samples but those in ``gc.collect()``."""
    return samples.where(lambda sample: not is_collecting(sample))


def is_collecting(sample: StackSample) -> bool:
    """True if the innermost line calls the collector: that has no frame of its own."""
    return bool(sample.frames) and collects_garbage(sample.frames[-1].source)


def _places(sample: StackSample) -> tuple[Place, Place | None]:
    leaf, own = sample.frames[-1], sample.place
    line = Place(leaf.file, leaf.line, leaf.function, leaf.source)
    return (own, None if leaf.user else line) if own is not None else (line, None)
