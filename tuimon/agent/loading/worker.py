"""Times the making of batches, in DataLoader workers and in trainers without workers: items, collate, waiting.

One wrapper around a fetcher's ``fetch``, once a batch, and one around its ``collate_fn``; each process writes running
totals into a slot of the trainer's ring (``ring/loading_slots.py``). Forked workers inherit the wrapper, spawned ones
get it when they import torch. Nothing that is pickled or copied is changed, the fetchers' own attributes neither, and
no frame of ours stands in a traceback.
"""

import os
import sys
import weakref
import zlib
from functools import partial, wraps
from typing import Any, Callable, Dict, List, Optional

from ..outside import raised_by_us, shielded_at_fork
from ..ring.loading_slots import COLLATE, IN_PROCESS, ITEMS, WAITING, claim
from ..torch_compat import dynamo, rebinding
from ..torch_compat.tracebacks import HIDES_FRAMES, hide_frame
from . import handover
from .batch_timer import BatchTimer
from .dataset import dataset_name

#: How often a worker tries to get a slot: another may be claiming one at the same moment.
_ATTEMPTS = 20

_own: Optional[BatchTimer] = None  # of this worker process
_hand_over: Optional[handover.HandOver] = None  # of its queue
_in_process: Dict[int, Optional[BatchTimer]] = {}  # of a trainer's loaders without workers, by loader; None: too quick
_attempts = 0
_fork_hooked = False
#: Fetchers by their id, until they are gone: None, where they are not timed.
_timers: Dict[int, Optional[BatchTimer]] = {}
_fetchers: Dict[int, List[Any]] = {}  # weak references that clear both
#: The hooks of this module, off in a trainer with nothing to time: in a step of 0.3 ms two plain calls cost 0.5 %.
_hooks: List[rebinding.Rebound] = []


def wrapped_fetch(original: Callable[..., Any]) -> Callable[..., Any]:
    """``fetch`` of a fetcher class, timed."""

    @wraps(original)
    def tuimon_load(self: Any, possibly_batched_index: Any) -> Any:
        try:
            timer = _timers[id(self)]
        except raised_by_us(KeyError):
            timer = timer_of_worker(self)
        if timer is not None:
            timer.enter(ITEMS)
        try:
            batch = original(self, possibly_batched_index)
        except BaseException as error:
            if timer is not None:
                timer.enter(WAITING)
            hide_frame(error)
            raise
        if timer is None:
            return batch
        timer.enter(WAITING, 1)
        if timer is not _own and timer.is_quick():
            _stop_timing(self, timer)
        return batch

    dynamo.skip(tuimon_load)
    return tuimon_load


def hook_fetchers(fetch: Any) -> None:
    """Time the fetchers of the module ``torch.utils.data._utils.fetch``.

    Not before Python 3.11: there our frames would stand in the message of an exception that a worker hands over.
    """
    global _fork_hooked
    if not HIDES_FRAMES:
        return
    if not _fork_hooked:
        _fork_hooked = True
        os.register_at_fork(after_in_child=shielded_at_fork(_after_fork))
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher_class = getattr(fetch, name)
        fetch_hook = wrapped_fetch(fetcher_class.__dict__["fetch"])
        _hooks.append(rebinding.rebind(fetcher_class, "fetch", fetch_hook))
        if "collate_fn" not in fetcher_class.__dict__:
            _hooks.append(rebinding.rebind(fetcher_class, "collate_fn", _Collate()))
    rebinding.on_undo(_hooks.clear)
    dynamo.skip_with_callees(_Collate.__get__)
    rebinding.on_undo(_forget_timers)


def _forget_timers() -> None:
    """Leave the slots: the next ring has others."""
    _timers.clear()
    _fetchers.clear()
    for timer in filter(None, _in_process.values()):
        timer.slot.free()
    _in_process.clear()


def leave_untimed(fetcher: Any) -> None:
    """Never time this fetcher: it belongs to a loader inside a worker's data set."""
    if fetcher is not None:
        _attach(fetcher, None)


def time_in_process(fetcher: Any, loader: int, dataset: str) -> None:
    """Time the fetcher of a loader without workers. Never raises."""
    if fetcher is None or not HIDES_FRAMES:
        return
    timer = None
    try:
        timer = _in_process.get(loader)
        if loader and loader not in _in_process:
            slot = claim(os.getpid(), loader, IN_PROCESS, 0, zlib.crc32(dataset.encode()))
            if slot is not None:
                timer = _in_process[loader] = BatchTimer(slot)
                _switch_hooks(on=True)
    except raised_by_us(Exception):
        timer = None
    _attach(fetcher, timer)


def timer_of_worker(fetcher: Any) -> Optional[BatchTimer]:
    """The timer of the worker process that this fetcher runs in; None in any other process. Never raises."""
    global _own, _hand_over, _attempts
    try:
        info = sys.modules["torch.utils.data._utils.worker"]._worker_info
        if info is not None and _hand_over is None:
            _hand_over = handover.watch_own_queue()
        if info is not None and getattr(info, "worker_method", None) != "thread":
            _own = _own or _claim_as_worker(info)
    except raised_by_us(OSError, ValueError):  # another process is claiming; or the trainer has no ring (yet)
        _attempts += 1
        if _attempts < _ATTEMPTS:
            return None
    except raised_by_us(Exception):
        _own = None
    _attach(fetcher, _own)
    return _own


def _claim_as_worker(info: Any) -> Optional[BatchTimer]:
    parent = sys.modules["multiprocessing.process"].parent_process()
    dataset = zlib.crc32(dataset_name(info.dataset).encode())
    slot = claim(parent.pid, 0, info.id, info.num_workers, dataset)
    return None if slot is None else BatchTimer(slot, _hand_over)


def _attach(fetcher: Any, timer: Optional[BatchTimer]) -> None:
    key = id(fetcher)
    try:
        # no Python code runs at its end: a signal handler could raise in that to nobody
        _fetchers[key] = [weakref.ref(fetcher, partial(table.pop, key)) for table in (_timers, _fetchers)]
        _timers[key] = timer
    except raised_by_us(Exception):  # cannot be referenced weakly
        return


def _switch_hooks(*, on: bool) -> None:
    for hook in _hooks:
        hook.on() if on else hook.off()


def _stop_timing(fetcher: Any, timer: BatchTimer) -> None:
    """Stop for a loader without workers whose batches are quick: in a step of 0.4 ms the timing costs 1 %."""
    try:
        _timers[id(fetcher)] = None
        for loader, attached in _in_process.items():
            if attached is timer:
                _in_process[loader] = None
        timer.slot.free()
        if not any(_in_process.values()):
            _switch_hooks(on=False)
    except raised_by_us(Exception):
        return


class _Collate:
    """A fetcher's ``collate_fn``: the plain attribute, but timed where the fetch under way reads it."""

    def __get__(self, fetcher: Any, owner: Any = None) -> Any:
        plain = getattr(fetcher, "__dict__", {})
        if "collate_fn" not in plain:
            raise AttributeError("collate_fn")
        timer = _timers.get(id(fetcher))
        collate = plain["collate_fn"]
        return collate if timer is None or timer.state != ITEMS else _timed_collate(collate, timer)

    def __set__(self, fetcher: Any, collate: Any) -> None:
        fetcher.__dict__["collate_fn"] = collate

    def __delete__(self, fetcher: Any) -> None:
        del fetcher.__dict__["collate_fn"]


def _timed_collate(collate: Callable[[Any], Any], timer: BatchTimer) -> Callable[[Any], Any]:
    def tuimon_collate(samples: Any) -> Any:
        timer.enter(COLLATE)
        try:
            return collate(samples)
        except BaseException as error:
            hide_frame(error)
            raise

    dynamo.skip(tuimon_collate)
    return tuimon_collate


def _after_fork() -> None:
    """Let go of the parent's slots in a forked child."""
    global _own, _hand_over, _attempts
    for timer in filter(None, _in_process.values()):
        timer.slot.detach()
    if _own is not None:
        _own.slot.detach()
    _in_process.clear()
    _switch_hooks(on=True)
    _own = None
    _hand_over = None
    _attempts = 0
