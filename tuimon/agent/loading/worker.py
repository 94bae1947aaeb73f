"""Times the making of batches, in DataLoader workers and in trainers without workers: items, collate, waiting.

No function of torch's or of the program's is wrapped, so that no frame of ours stands between them. We provide
attributes that torch looks up once a batch: of its fetcher ``fetch``, with which items begin, and ``collate_fn``, with
which collate begins. It ends when a worker puts the batch into its queue, or a trainer's iterator looks up
``_pin_memory``. Each process writes running totals into a slot of the trainer's ring (``ring/loading_slots.py``).
Forked workers inherit the hooks, spawned ones get them when they import torch. Nothing that is pickled or copied is
changed.
"""

import os
import sys
import weakref
import zlib
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from ..outside import attempt, shielded_at_fork
from ..ring.loading_slots import IN_PROCESS, ITEMS, claim
from ..torch_compat import dynamo, rebinding
from ..torch_compat.unobserved import attributes, is_referable
from . import batch_timer
from .batch_timer import BatchTimer
from .dataset import dataset_name

#: How often a worker tries to get a slot: another may be claiming one at the same moment.
_ATTEMPTS = 20

_own: Optional[BatchTimer] = None  # of this worker process
_hand_over: Optional[batch_timer.HandOver] = None  # of its queue
_in_process: Dict[int, Optional[BatchTimer]] = {}  # of a trainer's loaders without workers, by loader; None: too quick
#: Those that are being timed; where there are none, the hooks are off.
in_process: List[BatchTimer] = []
_attempts = 0
_fork_hooked = False
#: Of fetchers and of a trainer's iterators by their id, until they are gone: None, where they are not timed.
_timers: Dict[int, Optional[BatchTimer]] = {}
_UNKNOWN: Any = object()
_timed: Dict[int, List[Any]] = {}  # weak references that clear both
#: The hooks of this module, off in a trainer with nothing to time: in a step of 0.3 ms two plain calls cost 0.5 %.
_hooks: List[rebinding.Rebound] = []


class _Fetch:
    """A fetcher's ``fetch``: torch's own function; who looks it up begins a batch."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    def __get__(self, fetcher: Any, owner: Any = None) -> Any:
        if fetcher is not None:
            timer = _timers.get(id(fetcher), _UNKNOWN)
            if timer is _UNKNOWN:
                timer = attempt(timer_of_worker, fetcher)  # another process is claiming, or torch has other names
            if timer is not None:
                timer.enter(ITEMS)
        return self._plain.__get__(fetcher, owner)


class _Attribute:
    """An attribute of an instance; who looks it up while a batch is made is at this moment of it."""

    def __init__(self, name: str, moment: Callable[[BatchTimer], None]) -> None:
        self._name, self._moment = name, moment

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        plain = attributes(instance)
        if self._name not in plain:
            raise AttributeError(self._name)
        timer = _timers.get(id(instance))
        if timer is not None:
            self._moment(timer)
        return plain[self._name]

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._name] = value

    def __delete__(self, instance: Any) -> None:
        del instance.__dict__[self._name]


def hook_fetchers(fetch: Any) -> None:
    """Time the fetchers of the module ``torch.utils.data._utils.fetch``."""
    global _fork_hooked
    if not _fork_hooked:
        _fork_hooked = True
        os.register_at_fork(after_in_child=shielded_at_fork(_after_fork))
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher_class = getattr(fetch, name)
        _hooks.append(rebinding.rebind(fetcher_class, "fetch", _Fetch(fetcher_class.__dict__["fetch"])))
        collate = _Attribute("collate_fn", BatchTimer.begin_collate)
        _hooks.append(rebinding.rebind(fetcher_class, "collate_fn", collate))
    rebinding.on_undo(_hooks.clear)
    dynamo.skip_with_callees(_Fetch.__get__, _Attribute.__get__)
    rebinding.on_undo(_forget_timers)


def hook_iterator(dataloader: Any) -> None:
    """Have a batch of a trainer without workers end where torch asks whether to pin it."""
    iterator_class = dataloader._SingleProcessDataLoaderIter
    pin = _Attribute("_pin_memory", BatchTimer.end_batch)
    _hooks.append(rebinding.rebind(iterator_class, "_pin_memory", pin))


def _forget_timers() -> None:
    """Leave the slots: the next ring has others."""
    _timers.clear()
    _timed.clear()
    for timer in filter(None, _in_process.values()):
        timer.slot.free()
    _in_process.clear()
    in_process.clear()


def leave_untimed(fetcher: Any) -> None:
    """Never time this fetcher: it belongs to a loader inside a worker's data set."""
    if fetcher is not None:
        _attach(fetcher, None)


def time_in_process(iterator: Any, fetcher: Any, loader: int, dataset: str) -> None:
    """Time the fetcher of a loader without workers. Raises OSError where the ring cannot be opened."""
    if fetcher is not None:
        timer = _timer_of_trainer(loader, dataset)
        _attach(fetcher, timer)
        _attach(iterator, timer)


def _timer_of_trainer(loader: int, dataset: str) -> Optional[BatchTimer]:
    if loader and loader not in _in_process:
        slot = claim(os.getpid(), loader, IN_PROCESS, 0, zlib.crc32(dataset.encode()))
        if slot is not None:
            _switch_hooks(on=True)  # first: an error comes again
            timer = _in_process[loader] = BatchTimer(slot)
            in_process.append(timer)
    return _in_process.get(loader)


def end_fetch(iterator: Any) -> None:
    """A fetch from this iterator is over, or has failed."""
    timer = _timers.get(id(iterator))
    if timer is not None:
        timer.end_batch()
        if timer.is_quick():
            _stop_timing(timer)


def timer_of_worker(fetcher: Any) -> Optional[BatchTimer]:
    """The timer of the worker process that this fetcher runs in; None in any other process.

    Raises OSError, a few times, while another process is claiming a slot, or where the trainer has no ring (yet).
    """
    global _own, _attempts
    if _attempts < _ATTEMPTS:
        _attempts += 1
        _own = _found_own()
        _attempts = 0  # in a row
    _attach(fetcher, _own)
    return _own


def _found_own() -> Optional[BatchTimer]:
    global _hand_over
    info = sys.modules["torch.utils.data._utils.worker"]._worker_info
    if info is not None and _hand_over is None:
        _hand_over = batch_timer.watch_own_queue()
    if _hand_over is None or getattr(info, "worker_method", None) == "thread":
        return _own
    return _own or _claim_as_worker(info)


def _claim_as_worker(info: Any) -> Optional[BatchTimer]:
    parent = sys.modules["multiprocessing.process"].parent_process()
    dataset = zlib.crc32(dataset_name(info.dataset).encode())
    slot = claim(parent.pid, 0, info.id, info.num_workers, dataset)
    return None if slot is None else BatchTimer(slot, _hand_over)


def _attach(timed: Any, timer: Optional[BatchTimer]) -> None:
    key = id(timed)
    if is_referable(timed):
        # no Python code runs at its end: a signal handler could raise in that to nobody
        _timed[key] = [weakref.ref(timed, partial(table.pop, key)) for table in (_timers, _timed)]
        _timers[key] = timer


def _switch_hooks(*, on: bool) -> None:
    for hook in _hooks:
        hook.on() if on else hook.off()


def _stop_timing(timer: BatchTimer) -> None:
    """Stop for a loader without workers whose batches are quick: in a step of 0.4 ms the timing costs 1 %."""
    for table in (_timers, _in_process):
        for key in [key for key, attached in list(table.items()) if attached is timer]:
            table[key] = None
    in_process[:] = [each for each in in_process if each is not timer]
    timer.slot.free()
    if not in_process:
        _switch_hooks(on=False)


def _after_fork() -> None:
    """Let go of the parent's slots in a forked child."""
    global _own, _hand_over, _attempts
    for timer in filter(None, _in_process.values()):
        timer.slot.detach()
    if _own is not None:
        _own.slot.detach()
    _in_process.clear()
    in_process.clear()
    _switch_hooks(on=True)
    _own = None
    _hand_over = None
    _attempts = 0
