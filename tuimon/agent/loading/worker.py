"""Times the making of batches, in DataLoader workers and in trainers without workers: items, collate, waiting.

No function of torch's or of the program's is wrapped, so that no frame of ours stands between them. We provide
attributes that torch looks up once a batch: of its fetcher ``fetch``, with which items begin, and ``collate_fn``, with
which collate begins. A batch ends when a worker puts it into its queue, or a trainer's iterator looks up
``_pin_memory``. Each process writes running totals into a slot of the trainer's ring (``ring/loading_slots.py``).
Forked workers inherit the hooks, spawned ones get them when they import torch. Nothing that is pickled or copied is
changed.

A worker puts its batch into a queue and goes on: a thread of the queue pickles the batch and writes it to the pipe.
If nothing is left to send and the worker still waits, the trainer has no use for another batch yet.
"""

import os
import sys
import zlib
from functools import partial
from time import monotonic_ns
from typing import Any, Callable, Dict, List, Optional, Set

from .. import runtime
from ..outside import attempt, hide_frame
from ..ring.loading_slots import COLLATE, IN_PROCESS, ITEMS, UNMEASURED, WAITING, LoadingSlot, claim_slot
from ..torch_compat import rebinding
from ..torch_compat.unobserved import ByObject, attributes, dataset_name

#: Index of the time for handing batches over, after the states: the part of waiting in which a batch was still being
#: sent.
_HAND_OVER = 3
#: A state that lasted longer than this is written at its end ...
_LONG_NS = 1_000_000
#: ... and any state at its end, this long after the last write.
_HOLD_NS = 20_000_000
#: Batches are no longer timed after this many in a row that were each made in less than this: timing costs more than it
#: shows.
_QUICK_NS = 500_000
_QUICK_BATCHES = 64


class HandOver:
    """Counts batches into the queue and out of it, from two threads that write different fields; never raises."""

    def __init__(self) -> None:
        self.before_put: Callable[[], None] = lambda: None
        self._put = 0
        self._failed = 0
        self._sent = 0
        self._sent_ns = 0  # when the last batch left the queue

    def busy_ns(self, since_ns: int, now_ns: int) -> int:
        """The part of this interval in which a batch was being sent; none may be queued within the interval."""
        if self._sent + self._failed < self._put:
            return now_ns - since_ns
        return min(max(self._sent_ns - since_ns, 0), now_ns - since_ns)

    def tuimon_put(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The queue's ``put``, which runs on the worker's main thread."""
        self.before_put()
        self._put += 1
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            self._put -= 1
            hide_frame(error)
            raise

    def tuimon_close(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The queue's ``close``, at the end of a worker: its last wait is recorded now, as no further batch follows."""
        self.before_put()
        return original(*args, **kwargs)

    def tuimon_send(self, original: Callable[[Any], Any], data: Any) -> None:
        """Write a pickled batch to the pipe, on the queue's thread."""
        try:
            original(data)
        except BaseException as error:
            hide_frame(error)
            raise
        self._sent_ns = monotonic_ns()
        self._sent += 1

    def tuimon_error(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The function that the queue's thread calls for a batch that it could not pickle or write."""
        self._sent_ns = monotonic_ns()
        self._failed += 1
        return original(*args, **kwargs)


def watch_own_queue() -> Optional[HandOver]:
    """Wrap the queue for batches of torch's worker loop; None in other processes, and for unknown kinds of queue."""
    process = sys.modules["multiprocessing.process"].current_process()
    target = process._target
    if getattr(target, "__name__", None) != "_worker_loop":
        return None
    names = target.__code__.co_varnames[: target.__code__.co_argcount]
    queue = process._args[names.index("data_queue")]
    if type(queue).__module__ != "multiprocessing.queues" or queue._thread is not None:
        return None  # its thread already runs, and has bound the functions it calls
    hand_over = HandOver()
    queue._on_queue_feeder_error = partial(hand_over.tuimon_error, queue._on_queue_feeder_error)
    queue.close = partial(hand_over.tuimon_close, queue.close)
    queue._send_bytes = partial(hand_over.tuimon_send, queue._send_bytes)
    queue.put = partial(hand_over.tuimon_put, queue.put)
    return hand_over


class BatchTimer:
    """Times the states of one process, from one thread at a time; never raises.

    ::

        enter(ITEMS)        at  0 ms: what passed since the last batch was waiting
        enter(COLLATE)      at  8 ms: 8 ms of items
        enter(WAITING, 1)   at 10 ms: 2 ms of collate, one batch more
    """

    def __init__(self, slot: LoadingSlot, hand_over: Optional[HandOver] = None) -> None:
        self.slot = slot
        self._write = slot.write
        self.state = WAITING
        self._since_ns = monotonic_ns()
        self._write_due_ns = self._since_ns + _HOLD_NS
        self._batches = 0
        self._checked_ns = 0  # spent on items and collate, at the last check whether that is quick
        self._totals_ns = [0, 0, 0, UNMEASURED if hand_over is None else 0]  # by state, and _HAND_OVER
        self._hand_over = hand_over
        if hand_over is not None:
            hand_over.before_put = self._before_put

    def enter(self, state: int, batches: int = 0) -> None:
        """Begin another state; ``batches`` have been finished.

        Written immediately after a long state, and before waiting, which may last; else after some milliseconds: a
        write costs 2 us in a training loop, whose caches are cold, and it enters four states a step.
        """
        now_ns = monotonic_ns()
        spent_ns = now_ns - self._since_ns
        if self.state or self._hand_over is None:
            self._totals_ns[self.state] += spent_ns
        else:
            handed_ns = self._hand_over.busy_ns(self._since_ns, now_ns)
            self._totals_ns[_HAND_OVER] += handed_ns
            self._totals_ns[WAITING] += spent_ns - handed_ns
        self.state = state
        self._since_ns = now_ns
        self._batches += batches
        if state == WAITING or spent_ns > _LONG_NS or now_ns > self._write_due_ns:
            self._write_due_ns = now_ns + _HOLD_NS
            wait_ns, items_ns, collate_ns, hand_over_ns = self._totals_ns
            self._write(state, now_ns, self._batches, items_ns, collate_ns, wait_ns, hand_over_ns)

    def is_quick(self) -> bool:
        """True if the last _QUICK_BATCHES batches took too little time to be worth timing; called after each batch."""
        if self._batches % _QUICK_BATCHES:
            return False
        _, items_ns, collate_ns, _ = self._totals_ns
        spent_ns, self._checked_ns = items_ns + collate_ns - self._checked_ns, items_ns + collate_ns
        return spent_ns < _QUICK_BATCHES * _QUICK_NS

    def begin_collate(self) -> None:
        """End the items, if they were being made, and begin collate."""
        if self.state == ITEMS:
            self.enter(COLLATE)

    def end_batch(self) -> None:
        """End the batch that was being made: it is done, or has failed."""
        if self.state:
            self.enter(WAITING, int(self.state == COLLATE))

    def _before_put(self) -> None:
        """End a batch; or, if something else is put into the queue between epochs, a wait without a hand-over."""
        if self.state or monotonic_ns() - self._since_ns > _LONG_NS:
            self.enter(WAITING, int(self.state == COLLATE))


#: The number of times that a worker tries to get a slot: another may be claiming one at the same moment.
_ATTEMPTS = 20

_own: Optional[BatchTimer] = None  # of this worker process
_hand_over: Optional[HandOver] = None  # of its queue
#: Those of a trainer's loaders without workers that are timed, by loader; while there are none, the hooks are off.
in_process: Dict[int, BatchTimer] = {}
_quick: Set[int] = set()  # further loaders, which are not worth timing
_attempts = 0
#: The timers of fetchers and of a trainer's iterators: None for those that are not timed.
_timers = ByObject()
_UNKNOWN: Any = object()
#: The hooks of this module, off in a trainer with nothing to time: in a step of 0.3 ms two plain calls cost 0.5 %.
_hooks: List[rebinding.Rebound] = []


class _Fetch:
    """A fetcher's ``fetch``: torch's own function; looking it up begins a batch."""

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
    """An attribute of an instance; looking it up while a batch is made marks a moment of the making."""

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
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher_class = getattr(fetch, name)
        _hooks.append(rebinding.rebind(fetcher_class, "fetch", _Fetch(fetcher_class.__dict__["fetch"])))
        collate = _Attribute("collate_fn", BatchTimer.begin_collate)
        _hooks.append(rebinding.rebind(fetcher_class, "collate_fn", collate))
    rebinding.on_undo(_hooks.clear)
    rebinding.on_undo(_forget_timers)


def hook_iterator(dataloader: Any) -> None:
    """Have a batch of a trainer without workers end where torch asks whether to pin it."""
    iterator_class = dataloader._SingleProcessDataLoaderIter
    pin = _Attribute("_pin_memory", BatchTimer.end_batch)
    _hooks.append(rebinding.rebind(iterator_class, "_pin_memory", pin))


def _forget_timers() -> None:
    """Leave the slots: the next ring has others."""
    _timers.clear()
    for timer in in_process.values():
        timer.slot.free()
    in_process.clear()
    _quick.clear()


def leave_untimed(fetcher: Any) -> None:
    """Never time this fetcher: it belongs to a loader inside a worker's dataset."""
    if fetcher is not None:
        _timers.attach(None, fetcher)


def time_in_process(iterator: Any, fetcher: Any, loader: int, dataset: str) -> None:
    """Time the fetcher of a loader without workers. Raises OSError if the ring cannot be opened."""
    if fetcher is None:
        return
    if loader and loader not in in_process and loader not in _quick:
        slot = claim_slot(os.getpid(), loader, IN_PROCESS, 0, zlib.crc32(dataset.encode()))
        if slot is not None:
            _switch_hooks(on=True)  # first: an error comes again
            in_process[loader] = BatchTimer(slot)
    for timed in (fetcher, iterator):
        _timers.attach(in_process.get(loader), timed)


def end_fetch(iterator: Any) -> None:
    """A fetch from this iterator is over, or has failed."""
    timer = _timers.get(id(iterator))
    if timer is not None:
        timer.end_batch()
        if timer.is_quick():  # in a step of 0.4 ms the timing costs 1 %
            for key in [key for key, attached in list(_timers.items()) if attached is timer]:
                _timers[key] = None
            for loader in [loader for loader, each in list(in_process.items()) if each is timer]:
                _quick.add(loader)
                in_process.pop(loader, None)
            timer.slot.free()
            if not in_process:
                _switch_hooks(on=False)


def timer_of_worker(fetcher: Any) -> Optional[BatchTimer]:
    """The timer of the worker process that this fetcher runs in; None in any other process.

    Raises OSError, a few times, while another process is claiming a slot, or if the trainer has no ring (yet).
    """
    global _own, _attempts
    if _attempts < _ATTEMPTS:
        _attempts += 1
        _own = _found_own()
        _attempts = 0  # in a row
    _timers.attach(_own, fetcher)
    return _own


def _found_own() -> Optional[BatchTimer]:
    global _hand_over
    info = sys.modules["torch.utils.data._utils.worker"]._worker_info
    if info is not None and _hand_over is None:
        _hand_over = watch_own_queue()
    if _hand_over is None or getattr(info, "worker_method", None) == "thread":
        return _own
    if _own is not None:
        return _own
    parent = sys.modules["multiprocessing.process"].parent_process()
    dataset = zlib.crc32(dataset_name(info.dataset).encode())
    slot = claim_slot(parent.pid, 0, info.id, info.num_workers, dataset)
    return None if slot is None else BatchTimer(slot, _hand_over)


def _switch_hooks(*, on: bool) -> None:
    for hook in _hooks:
        hook.on() if on else hook.off()


def _after_fork() -> None:
    """Let go of the parent's slots in a forked child."""
    global _own, _hand_over, _attempts
    for timer in [*in_process.values(), *([_own] if _own is not None else [])]:
        timer.slot.detach()
    in_process.clear()
    _quick.clear()
    _switch_hooks(on=True)
    _own = None
    _hand_over = None
    _attempts = 0


runtime.in_child.append(_after_fork)
