"""How long a DataLoader worker is still sending a finished batch to its trainer.

A worker puts its batch into a queue and goes on: a thread of the queue pickles the batch and writes it to the pipe.
If nothing is left to send and the worker still waits, the trainer has no use for another batch yet.
"""

import sys
from time import monotonic_ns
from typing import Any, Callable, Optional

from ..torch_compat.tracebacks import hide_frame


class HandOver:
    """Counts batches into the queue and out of it, from two threads that write different fields; never raises."""

    def __init__(self) -> None:
        self.before_put: Callable[[], None] = _nothing
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


def _nothing() -> None:
    return None
