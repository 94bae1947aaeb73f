"""The cost of a function with all that it calls, which making it cheaper, or calling it less often, saves."""

from __future__ import annotations

from collections.abc import Collection

from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.samples import ThreadSamples


def with_callees(
    hot: HotFunction | None, samples: ThreadSamples, path: Collection[tuple[str, str]] = ()
) -> HotFunction | None:
    """The function with the share of all samples that pass through it; as it is where it is on the ``path``.

    ``samples``: those that its share is of; ``path``: functions, by file and name, that call the training itself.
    """
    if hot is None or not samples.total or (hot.place.file, hot.place.function) in path:
        return hot
    own = (hot.place.file, hot.place.function)
    inside = sum(stack.count for stack in samples.stacks if own in stack.functions)
    return hot._replace(share=max(hot.share, inside / samples.total), samples=max(hot.samples, inside))
