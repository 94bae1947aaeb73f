"""A Python thread of the training process that prepares its data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from tuimon.diagnosis.evidence.lines import HotFunction, hottest_function
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, StackSample, ThreadSamples
from tuimon.diagnosis.threshold import Threshold
from tuimon.session.rows import HotLine

QUEUE_SHARE = Threshold(
    0.5,
    "share of the data phase spent waiting for a lock, a queue or the GIL, from which another thread prepares the data",
    "measured in tests/scenarios: 1.0 in prefetch_thread, 0.0 in loops with a DataLoader",
)
#: Where Python's threads wait for each other, and for what they put into queues.
_QUEUE_FILE = re.compile(r"(?:^|/)(?:threading|queue)\.py$")


def producer(main: ThreadSamples, others: Sequence[ThreadSamples]) -> HotFunction | None:
    """The line of another Python thread that fills the queue which the training thread waits at for its data.

    ``main``: the training thread's samples; ``others``: those of each other thread. Where that thread runs Python code,
    the training thread waits for the GIL as well, which the interpreter hands over where a loop begins anew.
    """
    data = main.in_phase("data")
    waits = data.activities["lock"]
    if any(_passes_queue(sample) for sample in data.stacks):
        waits += sum(sample.count for sample in data.stacks if _begins_anew(sample, main.training_path))
    if data.total < MIN_SAMPLES or waits < QUEUE_SHARE * data.total:
        return None
    places: Counter[HotFunction] = Counter()
    for samples in others:
        hot = hottest_function(_working_lines(samples))
        if hot is not None:
            places[hot] = hot.samples
    return places.most_common(1)[0][0] if places else None


def _passes_queue(sample: StackSample) -> bool:
    """Whether it takes from a queue or notifies the thread that fills it."""
    return any(_QUEUE_FILE.search(frame.file) for frame in sample.frames)


def _begins_anew(sample: StackSample, path: Collection[tuple[str, str]]) -> bool:
    """Whether it is at the head of the loop that trains, in no call: that takes no time of its own."""
    leaf = sample.frames[-1] if sample.frames else None
    return leaf is not None and (leaf.file, leaf.function) in path and leaf.source.startswith("for ")


def _working_lines(samples: ThreadSamples) -> list[HotLine]:
    """User lines of a thread where it does not itself wait for another; shares are of all its samples."""
    return [
        HotLine(sample.place, sample.count / samples.total, sample.count, samples.total)
        for sample in samples.stacks
        if sample.place is not None and sample.activity not in ("lock", "idle")
    ]
