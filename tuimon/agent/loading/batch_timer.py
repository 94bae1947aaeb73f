"""Adds up where the time of a process that makes batches goes, and writes it to its loading slot.

A worker puts its batch into a queue and goes on: a thread of the queue pickles the batch and writes it to the pipe.
If nothing is left to send and the worker still waits, the trainer has no use for another batch yet.
"""

import sys
from time import monotonic_ns
from typing import Any, Callable, Optional

from ..outside import hide_frame
from ..ring.loading_slots import COLLATE, ITEMS, UNMEASURED, WAITING, LoadingSlot

#: Index of the time for handing batches over, beside the states: the part of waiting in which one was still sent.
_HAND_OVER = 3
#: A state that lasted longer than this is written at its end ...
_LONG_NS = 1_000_000
#: ... and any state at its end, this long after the last write.
_HOLD_NS = 20_000_000
#: So many batches in a row, each made in less than this, are not worth the cost of timing them.
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
        """How much of this interval a batch was being sent; none was put into the queue after the interval began."""
        if self._sent + self._failed < self._put:
            return now_ns - since_ns
        return min(max(self._sent_ns - since_ns, 0), now_ns - since_ns)

    def wrapped_put(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The queue's ``put``, which runs on the worker's main thread."""

        def tuimon_put(*args: Any, **kwargs: Any) -> Any:
            self.before_put()
            self._put += 1
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                self._put -= 1
                hide_frame(error)
                raise

        return tuimon_put

    def wrapped_close(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The queue's ``close``, at the end of a worker: its last wait is recorded now, as no further batch follows."""

        def tuimon_close(*args: Any, **kwargs: Any) -> Any:
            self.before_put()
            return original(*args, **kwargs)

        return tuimon_close

    def wrapped_send(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function that writes a pickled batch to the pipe, on the queue's thread."""

        def tuimon_send(data: Any) -> Any:
            try:
                original(data)
            except BaseException as error:
                hide_frame(error)
                raise
            self._sent_ns = monotonic_ns()
            self._sent += 1

        return tuimon_send

    def wrapped_error(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The function that the queue's thread calls for a batch that it could not pickle or write."""

        def tuimon_error(*args: Any, **kwargs: Any) -> Any:
            self._sent_ns = monotonic_ns()
            self._failed += 1
            return original(*args, **kwargs)

        return tuimon_error


def watch_own_queue() -> Optional[HandOver]:
    """Wrap the queue of this worker process; None where it is of an unknown kind."""
    queue = _own_queue()
    if queue is None or queue._thread is not None:  # its thread runs and has bound what it calls
        return None
    hand_over = HandOver()
    put, send = hand_over.wrapped_put(queue.put), hand_over.wrapped_send(queue._send_bytes)
    queue._on_queue_feeder_error = hand_over.wrapped_error(queue._on_queue_feeder_error)
    queue.close = hand_over.wrapped_close(queue.close)
    queue._send_bytes = send
    queue.put = put
    return hand_over


def _own_queue() -> Any:
    """The queue for batches among the arguments of torch's worker loop; None in any other process."""
    process = sys.modules["multiprocessing.process"].current_process()
    target = process._target
    if getattr(target, "__name__", None) != "_worker_loop":
        return None
    names = target.__code__.co_varnames[: target.__code__.co_argcount]
    queue = process._args[names.index("data_queue")]
    return queue if type(queue).__module__ == "multiprocessing.queues" else None


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

        Written at once after a long state, and before waiting, which may last; else after some milliseconds: a write
        costs 2 us in a training loop, whose caches are cold, and it enters four states a step.
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
        """Call after each batch: whether the last _QUICK_BATCHES took so little that timing them is not worth it."""
        if self._batches % _QUICK_BATCHES:
            return False
        _, items_ns, collate_ns, _ = self._totals_ns
        spent_ns, self._checked_ns = items_ns + collate_ns - self._checked_ns, items_ns + collate_ns
        return spent_ns < _QUICK_BATCHES * _QUICK_NS

    def begin_collate(self) -> None:
        """The items are there, if they were being made."""
        if self.state == ITEMS:
            self.enter(COLLATE)

    def end_batch(self) -> None:
        """What was being made is done, or has failed."""
        if self.state:
            self.enter(WAITING, int(self.state == COLLATE))

    def _before_put(self) -> None:
        """End a batch; or the waiting before something is put that is none, between epochs: it was for no hand-over."""
        if self.state or monotonic_ns() - self._since_ns > _LONG_NS:
            self.enter(WAITING, int(self.state == COLLATE))
