"""The GPU clock: events at the boundaries of the training loop, and when the GPU came to them, without ever waiting.

A hook asks for the number of its boundary's event, emits its marker with it, and then has the event recorded: so the
marker's time is never later than the event's. Turns of the loop are timed in bursts, as far as the budget goes; what
the GPU has come to is told at the beginning of later turns.

What it asks of a device (``cuda_events.CudaDevice``; a simulated one in the tests), none of which may wait for it:

    stream()               the current stream: equal for one and the same stream, with ``device_index``; None: there is
                           no device in use
    capturing()            whether events may not be touched, because a graph is being captured
    drained(stream)        whether it has nothing left to do
    new_event()            an event that takes times
    record(event, stream)
    done(event)            whether the device has come to it
    elapsed_ms(a, b)       float32; both are done
    memory()               of the current device, by torch's allocator: bytes allocated, reserved; retries, failures.
                           Or None
"""

import time
from _thread import allocate_lock
from typing import Any, Callable, List, Optional

from ..ring.layout import MEMORY_ALLOCATED, MEMORY_OOMS, MEMORY_RESERVED, MEMORY_RETRIES, TORCH_MEMORY
from .budget import Budget
from .events import Emit, EventChain
from .turns import NESTED, TURN_BEGINS, Turns

#: So many turns in a row are timed: a loop whose turns alternate is seen whole.
BURST_TURNS = 8
#: A rest of fewer turns is not worth it.
LEAST_REST = 4
#: So long (of the loop's own time) between two looks at the allocator.
MEMORY_NS = 1_000_000_000
#: No more than this is charged for one boundary: where the queue of launches is full, recording waits for room, and the
#: next launch would have waited instead; and a thread that lost its core, or the GIL, has not spent that time on us.
MOST_RECORD_NS = 30_000
MOST_BEGIN_NS = 300_000
#: A capture that begins in another thread waits so long at most.
LET_PASS_S = 0.1

_MEMORY_CODES = (MEMORY_ALLOCATED, MEMORY_RESERVED, MEMORY_RETRIES, MEMORY_OOMS)

#: What must never be freed: events of a device that failed, or of the process that this one was forked from.
_abandoned: List[Any] = []


class GpuClock:
    """``number`` and then ``record`` at every boundary of the loop; never raises, never waits for another thread.

    ``rest``, if there is one, is told that no boundary needs to be told of for so many backward passes: to follow turns
    that are not timed takes 2 us a boundary where the code is cold.
    """

    def __init__(
        self,
        device: Any,
        emit: Emit,
        now_ns: Callable[[], int] = time.monotonic_ns,
        rest: Optional[Callable[[int], None]] = None,
    ) -> None:
        self.on = True
        self._device = device
        self._emit = emit
        self._now_ns = now_ns
        self._turns = Turns(now_ns)
        self._budget = Budget(now_ns())
        self._events = EventChain(device, emit, now_ns)
        self._stream: Any = None  # of this burst
        self._left = 0  # turns of this burst that are still to be timed, this one included
        self._memory_due_ns = 0
        self._rest = rest
        self._rested = 0  # turns since the last that was followed
        self._look_due = False  # a turn has begun
        # Held around all that touches the device. Whoever finds it held goes away: it is this very thread, interrupted.
        self._touching = allocate_lock()

    def number(self, kind: int, key: int = 0) -> int:
        """The number of this boundary's event, 0 without one; ``key``: id of the optimizer."""
        if not self.on:
            return 0
        try:
            boundary = self._turns.boundary(kind, key) if self._left else self._turns.untimed(kind, key)
            if boundary == NESTED or not (self._turn_begins() if boundary == TURN_BEGINS else self._left):
                return 0
            number = self._events.next_number()
            if not number:  # all that there may be are waiting: no record will follow
                self._look_now()
            return number
        except Exception:
            self.close()
            return 0

    def record(self, number: int) -> None:
        """Record the event of the boundary that has got this number."""
        if not self.on or not self._touching.acquire(False):
            return
        try:
            begun_ns = self._now_ns()
            self._record(number, begun_ns)
            recorded_ns = self._now_ns()
            self._budget.spend(min(recorded_ns - begun_ns, MOST_RECORD_NS))
            if self._look_due:
                self._look(recorded_ns)
                self._budget.spend(min(self._now_ns() - recorded_ns, MOST_BEGIN_NS))
        except Exception:  # an error of the device surfaces in the user's own next call
            self.close()
        finally:
            self._touching.release()

    def close(self) -> None:
        """Turn off for good. Events are not freed: the device may have failed, or belong to another process."""
        self.on = False
        _abandoned.append(self._events)

    def in_child(self) -> None:
        """What a forked child goes on with: nothing, and its parent's events stay as they are."""
        self.close()

    def let_pass(self) -> None:
        """Return when no other thread touches the device, but soon: a record may be waiting for the device itself."""
        if self._touching.acquire(True, LET_PASS_S):
            self._touching.release()

    def _record(self, number: int, begun_ns: int) -> None:
        device = self._device
        if device.capturing():
            return
        stream = device.stream()
        if self._stream is None and stream is not None:
            self._stream = stream
            self._events.use(stream)
        elif stream is None or stream != self._stream:  # what lies between the two is no duration
            self._left = 0
            return
        drained = device.drained(stream)
        event = self._events.take()
        device.record(event, stream)
        self._events.add(number, event, drained, begun_ns)

    def _turn_begins(self) -> bool:
        """Whether its first boundary is timed: as the first of this turn, or as the end of the one before."""
        begun_ns = self._now_ns()
        paid = self._budget.turn(begun_ns, 1 + self._rested)
        self._rested = 0
        timed = self._left > 0
        if not (timed or paid or self._events.pending or begun_ns >= self._memory_due_ns):
            self._may_rest(begun_ns)
            return False
        self._look_due = True
        self._left = max(0, self._left - 1)
        if not self._left and self._budget.paid:
            self._left = BURST_TURNS
            if not timed:
                self._stream = None
        if timed or self._left:
            return True  # the look comes after the event: what it costs lies in no fetch
        self._look_now()
        return False

    def _look_now(self) -> None:
        if not self._look_due or not self._touching.acquire(False):
            return
        try:
            begun_ns = self._now_ns()
            self._look(begun_ns)
            self._budget.spend(min(self._now_ns() - begun_ns, MOST_BEGIN_NS))
        finally:
            self._touching.release()

    def _may_rest(self, now_ns: int) -> None:
        """Until all is paid, or memory is to be told of; the turn that follows the rest is not followed whole."""
        turns = min(self._budget.turns_owed(), (self._memory_due_ns - now_ns) // max(1, self._budget.turn_ns)) - 1
        if self._rest is not None and turns >= LEAST_REST and self._turns.backwards:
            self._rested = turns
            self._rest(turns * self._turns.backwards)

    def _look(self, now_ns: int) -> None:
        """Tell of events that are done, and once a second of memory; nobody else touches the device."""
        self._look_due = False
        wants_memory = now_ns >= self._memory_due_ns
        if not (wants_memory or self._events.pending) or self._device.capturing():
            return
        self._events.resolve()
        if wants_memory:
            self._memory_due_ns = now_ns + MEMORY_NS
            self._tell_memory()

    def _tell_memory(self) -> None:
        stream: Optional[Any] = self._device.stream()
        figures = None if stream is None else self._device.memory()
        if figures is None or stream is None:
            return
        for code, figure in zip(_MEMORY_CODES, figures):
            self._emit(TORCH_MEMORY, figure, stream.device_index << 4 | code)
