"""How long a DataLoader worker is still busy with handing a finished batch over.

A worker puts its batch into a queue and goes on: a thread of the queue pickles the batch and writes it to the pipe.
While nothing is left to hand over and the worker waits all the same, the trainer is not asking for more.
"""

import sys
from time import monotonic_ns
from typing import Any, Callable, Optional

from ..torch_compat.tracebacks import hide_frame


class HandOver:
    """Counts what went into the queue and what has left it. Two threads, each with fields of its own; never raises."""

    def __init__(self) -> None:
        self.before_put: Callable[[], None] = _nothing
        self._put = 0
        self._failed = 0
        self._sent = 0
        self._sent_ns = 0  # when the last left

    def busy_ns(self, since_ns: int, now_ns: int) -> int:
        """How much of this time the hand-over went on; nothing was put into the queue in it but at its beginning."""
        if self._sent + self._failed < self._put:
            return now_ns - since_ns
        return min(max(self._sent_ns - since_ns, 0), now_ns - since_ns)

    def wrapped_put(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``put`` of the queue: on the worker's main thread."""

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
        """``close`` of the queue, at the end of a worker: nobody asks it for another batch, so the last is told now."""

        def tuimon_close(*args: Any, **kwargs: Any) -> Any:
            self.before_put()
            return original(*args, **kwargs)

        return tuimon_close

    def wrapped_send(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What writes a pickled batch to the pipe: on the queue's thread."""

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
        """What the queue's thread calls for a batch that cannot be pickled, or not be written."""

        def tuimon_error(*args: Any, **kwargs: Any) -> Any:
            self._sent_ns = monotonic_ns()
            self._failed += 1
            return original(*args, **kwargs)

        return tuimon_error


def follow() -> Optional[HandOver]:
    """Measure the queue of the worker that this process is; None where its like is not known. Never raises."""
    try:
        queue = _own_queue()
        if queue is None or queue._thread is not None:  # its thread runs: it has what it calls
            return None
        over = HandOver()
        put, send = over.wrapped_put(queue.put), over.wrapped_send(queue._send_bytes)
        queue._on_queue_feeder_error = over.wrapped_error(queue._on_queue_feeder_error)
        queue.close = over.wrapped_close(queue.close)
        queue._send_bytes = send
        queue.put = put
        return over
    except Exception:
        return None


def _own_queue() -> Any:
    """The queue for batches among the arguments of torch's worker loop; None in a process of another kind."""
    process = sys.modules["multiprocessing.process"].current_process()
    target = process._target
    if getattr(target, "__name__", None) != "_worker_loop":
        return None
    names = target.__code__.co_varnames[: target.__code__.co_argcount]
    queue = process._args[names.index("data_queue")]
    return queue if type(queue).__module__ == "multiprocessing.queues" else None


def _nothing() -> None:
    return None
