"""Other Python threads of the training process: they make its data, or hold the GIL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tuimon.diagnosis.threshold import MIN_SAMPLES, MOST
from tuimon.records import Place, Threads
from tuimon.session.rows import HotLine, ThreadRow
from tuimon.session.stacks.activity import Activity, stands_in_wait
from tuimon.session.stacks.samples import NO_SAMPLES, Samples
from tuimon.session.stacks.trie import Node

#: The files in which Python's threads wait for each other, and for what they put into queues.
_QUEUE_FILE = re.compile(r"(?:^|/)(?:threading|queue)\.py$")
_GETS, _PUTS = re.compile(r"\.get(?:_nowait)?\("), re.compile(r"\.put(?:_nowait)?\(")


class Pool(NamedTuple):
    """Threads of the training process that make the items for which the training thread waits in a fetch."""

    hot: HotLine | None  # where they work; its share is of the data phase
    cpu_ratio: float  # cores that they use, on average
    cores: float  # that they use while they are waited for


def pool(main: Samples, others: Mapping[int, Samples], threads: Threads | None) -> Pool | None:
    """The pool that makes the data; None where the training thread makes most of it, or waits for another process.

    ``others``: the samples of each other thread, by its id. A thread whose CPU time is unknown counts as a whole core.
    """
    data = main.where(phase="data")
    waiting = data.share(awaits_thread) or 0.0
    busy = {tid: working for tid, each in others.items() if (working := each.where(works)).total >= MIN_SAMPLES}
    if waiting < MOST or not busy:
        return None
    hot = Samples.joined(busy.values()).hottest()
    rows, part = threads.threads if threads is not None else (), data.total / main.total
    known = {row.tid: row.cpu_ratio for row in rows if row.cpu_ratio is not None}
    cpu_ratio = sum(known.get(tid, part) for tid in busy)
    return Pool(hot._replace(share=waiting * hot.share) if hot is not None else None, cpu_ratio, cpu_ratio / part)


def awaits_thread(node: Node) -> bool:
    """True if a fetch waits for another thread, be it one that awaits a process."""
    return node.has("fetch") and stands_in_wait(node.frames) and _is_queue(node.frame.file)


def _is_queue(file: str) -> bool:
    return _QUEUE_FILE.search(file) is not None


def works(node: Node) -> bool:
    """True if a thread does not wait for work."""
    return node.activity not in ("lock", "idle")


def queue_wait(main: Samples) -> float:
    """Share of the training thread's samples in which it waits at a queue for its data.

    0 where that is not most of its data phase. Calls there take no time of their own: without a lock to wait for,
    the thread waits for the GIL.
    """
    data = main.where(phase="data")
    share = data.share(awaits_queue(main)) or 0.0
    return share * data.total / main.total if share >= MOST else 0.0


def awaits_queue(main: Samples) -> Callable[[Node], bool]:
    """True if the training thread waits at a queue in the data phase, or for the GIL there."""
    has_queue, path = main.where(phase="data").part(_passes_queue) > 0, main.training_path

    def waits(node: Node) -> bool:
        if node.activity == "lock" or _passes_queue(node):
            return True
        leaf = node.frame  # at the head of the loop that trains, or taking from a queue there, in no call
        takes = leaf.source.startswith("for ") or _GETS.search(leaf.source) is not None
        return has_queue and takes and leaf.code in path

    return waits


def puts_into_queue(node: Node) -> bool:
    """True if a thread makes in it, or puts, what goes into a queue."""
    return any(frame.user and _PUTS.search(frame.source) is not None for frame in node.frames)


def _passes_queue(node: Node) -> bool:
    """True if it takes from a queue or notifies the thread that fills it."""
    return any(_is_queue(frame.file) for frame in node.frames)


#: Waits of a thread of its own, during which it does not hold the GIL.
OWN_WAITS: tuple[Activity, ...] = ("data", "idle", "io", "lock", "ranks", "sleep", "sync")


class Contention(NamedTuple):
    """The time that the training thread loses to the thread that holds the GIL for longest; shares are of the time.

    ``share`` is the smaller of two: time in which others hold the GIL, and time of the training thread that neither
    CPU nor the run queue nor a wait of its own explains.
    """

    share: float
    others_hold: float
    training_holds: float | None
    unexplained: float
    culprit: ThreadRow
    place: Place | None  # what it does
    feeds: bool  # whether it puts what it makes into a queue
    queue_wait: float  # what the training thread waits at a queue for its data


def contention(
    training_tid: int, rows: Sequence[ThreadRow], main: Samples, others: Mapping[int, Samples]
) -> Contention | None:
    """The contention of other threads of the process for the GIL; None if there is none, or if it is unknown."""
    training = next((row for row in rows if row.tid == training_tid), None)
    if training is None or training.cpu_ratio is None or training.delay_ratio is None:
        return None
    waits = main.share(doing=OWN_WAITS)
    if waits is None:
        return None
    holders = [(held, row) for row in rows if row is not training and (held := _held(row, _samples(row, others)))]
    if not holders:
        return None
    culprit = max(holders, key=lambda holder: holder[0])[1]
    samples, held = _samples(culprit, others), sum(ratio for ratio, _ in holders)
    unexplained = 1.0 - training.cpu_ratio - training.delay_ratio - waits
    hot = samples.where(lambda node: node.activity not in OWN_WAITS).hottest()
    waited = queue_wait(main)
    return Contention(
        share=min(held, unexplained),
        others_hold=held,
        training_holds=training.gil_ratio,
        unexplained=unexplained,
        culprit=culprit,
        place=hot.place if hot else culprit.place,
        feeds=waited > 0 or samples.part(puts_into_queue) > 0,
        queue_wait=waited,
    )


def _held(row: ThreadRow, samples: Samples) -> float | None:
    """Share of time in which a thread holds the GIL: as dumps show, or while it runs Python; None where unknown."""
    if row.gil_ratio is not None:
        return row.gil_ratio
    if row.cpu_ratio is None or samples.total < MIN_SAMPLES:
        return None
    return row.cpu_ratio * samples.part(doing="python")


def _samples(row: ThreadRow, others: Mapping[int, Samples]) -> Samples:
    return others.get(row.tid, NO_SAMPLES) if row.count == 1 else NO_SAMPLES
