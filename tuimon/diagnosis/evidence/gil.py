"""Who holds the GIL while the training thread could run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tuimon.diagnosis.evidence.loading.producer import puts_into_queue, queue_wait
from tuimon.diagnosis.threshold import MIN_SAMPLES
from tuimon.records import Place
from tuimon.session.rows import ThreadRow
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.samples import NO_SAMPLES, Samples
from tuimon.session.stacks.trie import Node

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
    hot = samples.where(_is_at_work).hottest()
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


def _is_at_work(node: Node) -> bool:
    return node.activity not in OWN_WAITS


def _held(row: ThreadRow, samples: Samples) -> float | None:
    """Share of time in which a thread holds the GIL: as dumps show, or while it runs Python; None where unknown."""
    if row.gil_ratio is not None:
        return row.gil_ratio
    if row.cpu_ratio is None or samples.total < MIN_SAMPLES:
        return None
    return row.cpu_ratio * samples.part(doing="python")


def _samples(row: ThreadRow, others: Mapping[int, Samples]) -> Samples:
    return others.get(row.tid, NO_SAMPLES) if row.count == 1 else NO_SAMPLES
