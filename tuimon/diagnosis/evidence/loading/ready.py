"""Tests if batches are ready when the training fetches them."""

from __future__ import annotations

from tuimon.diagnosis.evidence.loading.batches import WAITS, draws_indices
from tuimon.diagnosis.evidence.loading.workers import Workers
from tuimon.diagnosis.evidence.steps import SLOW_RATIO
from tuimon.diagnosis.threshold import LARGE, MOST, SMALL, Threshold
from tuimon.session.rows import LoaderRow
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node
from tuimon.session.windows import mean_of_known

HAND_OVER_MS = Threshold(
    2.0,
    "ms that a batch from a worker is taken to cost the training thread where there are no workers yet",
    "measured in tests/scenarios where batches lie ready, two tensors each: 2.1 ms (healthy_trainer); 2.2 to 2.4 ms in"
    " other loops",
)
#: Part of the names of torch's functions that take a tensor out of shared memory: ``rebuild_storage_fd`` and others.
_TAKES_BATCH = "rebuild_"
#: The DataLoader's function in which the training thread gets a batch.
_NEXT = "__next__"
#: Workers of which one may hold back the batches of another.
_SEVERAL = 2


def lie_ready(loader: LoaderRow | None, workers: Workers, data: Samples) -> bool:
    """True if batches are ready at most fetches: these take the time to hand a batch over, not to make it.

    Those of several workers only where these are idle. Without markers the samples of fetches show it (``data``): where
    it draws no indices, the training thread is at work there for most of the time, if it has not to wait for a core.
    """
    if workers.busy_ratio is None or is_held_back(loader, workers):
        return False
    is_busy = workers.busy_ratio >= MOST
    if loader is None:
        if is_busy and workers.number > 1 and _lack_cores(workers):
            return False
        draws = draws_indices(data)
        fetching = data.where(lambda node: not draws(node))
        taking = fetching.share(lambda node: _takes(node, is_busy))
        return taking is not None and taking > 1.0 - MOST
    if loader.ready_none_ratio is None or (is_busy and workers.number > 1):
        return False
    if is_busy:
        return loader.ready_none_ratio < SMALL and _is_ahead(loader) and not _is_held(loader, data)
    return loader.ready_none_ratio < MOST


def is_held_back(loader: LoaderRow | None, workers: Workers) -> bool:
    """True if fetches wait mostly for the next batch in order while workers idle, as later ones are made."""
    if loader is None or loader.facts.in_order is False or not loader.held_ms or workers.number < _SEVERAL:
        return False
    if late_worker(loader) is None and (loader.late_ms or 0.0) < SLOW_RATIO * (workers.batch_ms or 0.0):
        return False
    is_idle = workers.busy_ratio is not None and workers.busy_ratio < 1.0 - LARGE
    return is_idle and loader.held_ms >= MOST * (loader.wait_ms or 0.0)


def late_worker(loader: LoaderRow) -> str | None:
    """The name of the worker that makes batches for several times as long as each of the others; None without one."""
    *others, (most, name) = sorted((row.busy_ratio or 0.0, row.name) for row in loader.worker_rows) or [(0.0, "")]
    return name if others and most > SLOW_RATIO * others[-1][0] else None


def _lack_cores(workers: Workers) -> bool:
    """True if they wait for a core longer than they have one: then who is at work in a fetch may wait for one, too."""
    if workers.ran_ratio is None or workers.cpu_ratio is None:
        return False
    return workers.ran_ratio - workers.cpu_ratio > workers.cpu_ratio


def _takes(node: Node, is_busy: bool) -> bool:
    """True if the training thread takes a batch over, or tells a worker to make the next.

    It waits for the worker meanwhile, which answers at once where it does not keep the GIL busy.
    """
    if node.activity in WAITS:
        return _takes_batch(node) and not is_busy
    return _takes_batch(node) or node.calls(_NEXT)


def _is_ahead(loader: LoaderRow) -> bool:
    """True if its worker waits for requests; True where no worker says how long."""
    rows = loader.worker_rows
    known = [(w.wait_ms, w.items_ms + (w.collate_ms or 0.0)) for w in rows if w.wait_ms is not None and w.items_ms]
    waited = mean_of_known(wait_ms / (wait_ms + making_ms) for wait_ms, making_ms in known)
    return waited is None or waited >= SMALL


def _is_held(loader: LoaderRow, data: Samples) -> bool:
    """True if fetches wait for a thread of the worker to send the memory of a batch that lies ready.

    It needs the GIL, which the code that makes the next batch holds meanwhile.
    """
    held = data.share(_takes_batch, doing=WAITS)
    return held is not None and held * (loader.wait_ms or 0.0) >= HAND_OVER_MS


def draws_for_longer(data: Samples) -> bool:
    """True if more samples draw indices than wait for a batch or take it over."""
    draws = draws_indices(data)
    taking = data.where(lambda node: not draws(node) and (_takes_batch(node) or node.activity in WAITS))
    return data.where(draws).total > taking.total


def _takes_batch(node: Node) -> bool:
    return node.calls(_TAKES_BATCH)
