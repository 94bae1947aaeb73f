"""Python threads of the training process that prepare its data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tuimon.diagnosis.evidence.lines import HotFunction, hottest_function, hottest_place
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, ThreadSamples
from tuimon.diagnosis.threshold import MOST
from tuimon.records import Threads
from tuimon.session.loop_tree.activity import stands_in_wait
from tuimon.session.loop_tree.stacks import StackSample
from tuimon.session.rows import HotLine

#: The files in which Python's threads wait for each other, and for what they put into queues.
_QUEUE_FILE = re.compile(r"(?:^|/)(?:threading|queue)\.py$")
_GETS, _PUTS = re.compile(r"\.get(?:_nowait)?\("), re.compile(r"\.put(?:_nowait)?\(")


class Pool(NamedTuple):
    """Threads of the training process that make the items for which the training thread waits in a fetch."""

    hot: HotFunction | None  # where they work; its share is of the data phase
    cpu_ratio: float  # cores that they use, on average
    cores: float  # that they use while they are waited for


def pool(main: ThreadSamples, others: Mapping[int, ThreadSamples], threads: Threads | None) -> Pool | None:
    """The pool that makes the data; None where the training thread makes most of it, or waits for another process.

    ``others``: the samples of each other thread, by its id. A thread whose CPU time is unknown counts as a whole core.
    """
    data = main.in_phase("data")
    waiting = thread_wait(data)
    busy = {tid: working for tid, each in others.items() if (working := each.where(_works)).total >= MIN_SAMPLES}
    if waiting < MOST or not busy:
        return None
    hot = hottest_place((sample.place, sample.count) for each in busy.values() for sample in each.stacks)
    rows, part = threads.threads if threads is not None else (), data.total / main.total
    known = {row.tid: row.cpu_ratio for row in rows if row.cpu_ratio is not None}
    cpu_ratio = sum(known.get(tid, part) for tid in busy)
    return Pool(hot._replace(share=waiting * hot.share) if hot is not None else None, cpu_ratio, cpu_ratio / part)


def thread_wait(data: ThreadSamples) -> float:
    """Share of these samples in which a fetch waits for another thread, be it one that awaits a process."""
    return data.share_where(_waits_for_thread) or 0.0


def _waits_for_thread(sample: StackSample) -> bool:
    """True if a fetch leads to a wait for another thread of the process: for its answer, or for a queue."""
    return "fetch" in sample.kinds and stands_in_wait(sample.frames) and _is_queue(sample.frames[-1].file)


def _is_queue(file: str) -> bool:
    return _QUEUE_FILE.search(file) is not None


def _works(sample: StackSample) -> bool:
    return sample.activity not in ("lock", "idle")


def producer(main: ThreadSamples, others: Sequence[ThreadSamples]) -> HotFunction | None:
    """The line of another Python thread that fills the queue which the training thread waits at for its data.

    ``main``: the training thread's samples; ``others``: those of each other thread. If that thread runs Python code,
    the training thread waits for the GIL as well, which the interpreter hands over where a loop begins anew.
    """
    if not queue_wait(main):
        return None
    places: Counter[HotFunction] = Counter()
    for samples in others:
        hot = hottest_function(_working_lines(samples))
        if hot is not None:
            places[hot] = hot.samples
    return places.most_common(1)[0][0] if places else None


def queue_wait(main: ThreadSamples) -> float:
    """Share of the training thread's samples in which it waits at a queue for its data.

    0 where that is not most of its data phase. Calls there take no time of their own: without a lock to wait for,
    the thread waits for the GIL.
    """
    data = main.in_phase("data")
    has_queue, path = any(map(_passes_queue, data.stacks)), main.training_path

    def waits(sample: StackSample) -> bool:
        return sample.activity == "lock" or _passes_queue(sample) or (has_queue and _calls_queue(sample, path))

    share = data.share_where(waits) or 0.0
    return share * data.total / main.total if share >= MOST else 0.0


def puts_into_queue(sample: StackSample) -> bool:
    """True if a thread makes in it, or puts, what goes into a queue."""
    return any(frame.user and _PUTS.search(frame.source) for frame in sample.frames)


def _passes_queue(sample: StackSample) -> bool:
    """True if it takes from a queue or notifies the thread that fills it."""
    return any(_is_queue(frame.file) for frame in sample.frames)


def _calls_queue(sample: StackSample, path: Collection[tuple[str, str]]) -> bool:
    """True if it is at the head of the loop that trains, or takes from a queue there, in no call."""
    leaf = sample.frames[-1] if sample.frames else None
    if leaf is None or (leaf.file, leaf.function) not in path:
        return False
    return leaf.source.startswith("for ") or _GETS.search(leaf.source) is not None


def _working_lines(samples: ThreadSamples) -> list[HotLine]:
    """User lines of a thread where it does not itself wait for another; shares are of all its samples."""
    return [
        HotLine(sample.place, sample.count / samples.total, sample.count, samples.total)
        for sample in samples.stacks
        if sample.place is not None and _works(sample)
    ]
