"""Which line calls Python's garbage collector, as samples show; an automatic collection has no line of its own."""

from __future__ import annotations

from collections import Counter

from tuimon.diagnosis.threshold import REPORTED
from tuimon.records import Place
from tuimon.session.rows import HotLine
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node
from tuimon.torch_code import collects_garbage


def collecting_line(samples: Samples) -> HotLine | None:
    """The line with most samples in ``gc.collect()``: the user's, with the library's that it leads to; else None."""
    counts: Counter[tuple[Place, Place | None]] = Counter()
    for row in samples.where(is_collecting).rows:
        counts[_places(row.node)] += row.count
    if not counts:
        return None
    (place, library), count = counts.most_common(1)[0]
    return HotLine(place, count / samples.total, count, samples.total, library)


def sampled_collections(samples: Samples) -> float | None:
    """The share of the samples in steps that are in ``gc.collect()``; None where it is too small to be told."""
    share = samples.in_steps.share(is_collecting)
    return share if share is not None and share >= REPORTED else None


def without_collections(samples: Samples) -> Samples:
    """All samples but those in ``gc.collect()``."""
    return samples.where(lambda node: not is_collecting(node))


def is_collecting(node: Node) -> bool:
    """True if the innermost line calls the collector: that has no frame of its own."""
    return collects_garbage(node.frame.source)


def _places(node: Node) -> tuple[Place, Place | None]:
    leaf, own = node.frame, node.place
    line = Place(leaf.file, leaf.line, leaf.function, leaf.source)
    return (own, None if leaf.user else line) if own is not None else (line, None)
