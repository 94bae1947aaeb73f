"""Where batches are made, in DataLoader workers and in trainers without workers: items, collate, waiting.

One wrapper around a fetcher's ``fetch``, once a batch, and one around its ``collate_fn``: each call writes running
totals into a slot of the trainer's ring (``slots.py``). Forked workers inherit the wrapper, spawned ones get it when
they import torch. Nothing that is pickled is changed, and no frame of ours stands in a traceback.
"""

import os
import sys
import zlib
from functools import wraps
from typing import Any, Callable, Dict, Optional

from ..ring.loading_slots import COLLATE, IN_PROCESS, ITEMS, WAITING, Slot, claim
from ..torch_compat import dynamo
from ..torch_compat.tracebacks import HIDES_FRAMES, hide_frame
from . import handover

#: How often a worker tries to get a slot: another may be claiming one at the same moment.
_ATTEMPTS = 20

_own: Optional[Slot] = None  # of this worker process
_over: Optional[handover.HandOver] = None  # of its queue
_in_process: Dict[int, Optional[Slot]] = {}  # of a trainer's loaders without workers, by loader; None: too quick
_attempts = 0
_fork_hooked = False


def wrapped_fetch(original: Callable[..., Any]) -> Callable[..., Any]:
    """``fetch`` of a fetcher class, measured."""

    @wraps(original)
    def tuimon_load(self: Any, possibly_batched_index: Any) -> Any:
        try:
            slot = self._tuimon_slot
        except AttributeError:
            slot = slot_of(self)
        if slot is not None:
            slot.enter(ITEMS)
        try:
            batch = original(self, possibly_batched_index)
        except BaseException as error:
            if slot is not None:
                slot.enter(WAITING)
            hide_frame(error)
            raise
        if slot is None:
            return batch
        slot.enter(WAITING, 1)
        if slot is not _own and slot.is_quick():
            _stop_following(self, slot)
        return batch

    dynamo.skip(tuimon_load)
    return tuimon_load


def hook_fetchers(fetch: Any, rebind: Callable[[Any, str, Any], None]) -> None:
    """Measure the fetchers of ``torch.utils.data._utils.fetch``.

    Not before Python 3.11: there our frames would stand in the message of an exception that a worker hands over.
    """
    global _fork_hooked
    if not HIDES_FRAMES:
        return
    if not _fork_hooked:
        _fork_hooked = True
        os.register_at_fork(after_in_child=_after_fork)
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher_class = getattr(fetch, name)
        rebind(fetcher_class, "fetch", wrapped_fetch(fetcher_class.__dict__["fetch"]))


def leave_alone(fetcher: Any) -> None:
    """This fetcher is none that anybody waits for: a loader inside a worker's data set."""
    if fetcher is not None:
        fetcher._tuimon_slot = None


def follow_in_process(fetcher: Any, loader: int, dataset: str) -> None:
    """The fetcher of a loader without workers. Never raises."""
    if fetcher is None or not HIDES_FRAMES:
        return
    slot = None
    try:
        slot = _in_process.get(loader)
        if loader and loader not in _in_process:
            slot = claim(os.getpid(), loader, IN_PROCESS, 0, zlib.crc32(dataset.encode()))
            if slot is not None:
                _in_process[loader] = slot
    except Exception:
        slot = None
    _follow(fetcher, slot)


def slot_of(fetcher: Any) -> Optional[Slot]:
    """The slot of the worker that this fetcher works in; None in any other process. Never raises."""
    global _own, _over, _attempts
    try:
        info = sys.modules["torch.utils.data._utils.worker"]._worker_info
        if info is not None and _over is None:
            _over = handover.follow()
        if info is not None and getattr(info, "worker_method", None) != "thread":
            _own = _own or _claim_as_worker(info)
    except (OSError, ValueError):  # another is claiming; or the trainer has no ring (yet)
        _attempts += 1
        if _attempts < _ATTEMPTS:
            return None
    except Exception:
        _own = None
    _follow(fetcher, _own)
    return _own


def _claim_as_worker(info: Any) -> Optional[Slot]:
    from .loaders import dataset_name

    parent = sys.modules["multiprocessing.process"].parent_process()
    dataset = zlib.crc32(dataset_name(info.dataset).encode())
    slot = claim(parent.pid, 0, info.id, info.num_workers, dataset)
    if slot is not None:
        slot.follow(_over)
    return slot


def _follow(fetcher: Any, slot: Optional[Slot]) -> None:
    try:
        if slot is not None:
            fetcher.collate_fn = _timed(fetcher.collate_fn, slot)
        fetcher._tuimon_slot = slot
    except Exception:
        return


def _stop_following(fetcher: Any, slot: Slot) -> None:
    """Of a loader without workers whose batches are quick: in a step of 0.4 ms the look inside costs 1 %."""
    try:
        fetcher._tuimon_slot = None
        fetcher.collate_fn = getattr(fetcher.collate_fn, "tuimon_original", fetcher.collate_fn)
        for loader, followed in _in_process.items():
            if followed is slot:
                _in_process[loader] = None
        slot.vanish()
    except Exception:
        return


def _timed(collate: Callable[[Any], Any], slot: Slot) -> Callable[[Any], Any]:
    def tuimon_collate(samples: Any) -> Any:
        slot.enter(COLLATE)
        try:
            return collate(samples)
        except BaseException as error:
            hide_frame(error)
            raise

    tuimon_collate.tuimon_original = collate  # type: ignore[attr-defined]  # a function's own attribute
    dynamo.skip(tuimon_collate)
    return tuimon_collate


def _after_fork() -> None:
    """The slots of the parent are not this process's to write to."""
    global _own, _over, _attempts
    for slot in filter(None, _in_process.values()):
        slot.let_go()
    if _own is not None:
        _own.let_go()
    _in_process.clear()
    _own = None
    _over = None
    _attempts = 0
