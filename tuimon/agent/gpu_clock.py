"""The GPU clock: records events at the training loop's boundaries and reads the times at which the GPU reached them.

A hook gets the number of its boundary's event, emits its marker with it, and then has the event recorded: so the
marker's time is never later than the event's. Steps are timed in bursts that a budget limits; events that are
done are reported at later boundaries. Nothing ever waits for the GPU.

The device that it drives (``cuda.CudaDevice``; a simulated one in the tests) has these methods, none of which waits:

    stream()               the current stream, equal for one and the same stream, with ``device_index``; None while no
                           device is in use
    is_capturing()         whether events must not be touched, because a graph is being captured
    is_idle(stream)        whether nothing is queued in it
    new_event()            an event that takes times
    record(event, stream)
    is_done(event)         whether the device has reached it
    elapsed_ms(a, b)       float32; both are done
    memory()               of the current device, by torch's allocator: bytes allocated, reserved; retries, failures,
                           frees by the driver, pinned bytes of the host, most bytes allocated at a time (None if
                           torch does not count them); or None

GPU_TIME counts from an anchor: also an event, replaced every few seconds because torch gives times as float32 of ms.
The first event of a count is its own anchor: GPU_ANCHOR precedes its GPU_TIME. At later anchors GPU_ANCHOR follows.
"""

import time
from _thread import get_ident
from collections import deque
from typing import Any, Callable, Deque, List, NamedTuple, Optional

from .outside import attempt
from .own_threads import Turn
from .ring import layout
from .ring.layout import BACKWARD_BEGIN, BACKWARD_END, FETCH_END, OPTIMIZER_BEGIN
from .steps import StepCounter, TokenBucket

Emit = Callable[[int, int, int], None]

#: Most events at a time, pending ones and the anchor together.
POOL = 256
#: Most events that one poll queries.
POLL_LIMIT = 16
#: With more pending than this, each new event has two polled: a step may have hundreds of boundaries.
CROWDED = 128
#: An event this long after its anchor becomes the anchor: float32 of ms resolves half a microsecond there.
ANCHOR_NS = 5_000_000_000
#: An event this long after its anchor begins a new count: the resolution is 15 us there.
NEW_COUNT_NS = 260_000_000_000
#: Time that passes between the computation of a gap and the time stamp of its marker.
_EMIT_US = 2


class Pending(NamedTuple):
    """A recorded event, and the state of its stream just before."""

    number: int
    event: Any
    stream: Any
    stream_idle: bool
    recorded_ns: int  # recorded at this time or later,
    took_us: int  # but at most this long after it


class EventChain:
    """Events of one device at a time, in the order in which they were recorded."""

    def __init__(self, device: Any, emit: Emit, now_ns: Callable[[], int]) -> None:
        self.pending: Deque[Pending] = deque()
        self._device = device
        self._emit = emit
        self._now_ns = now_ns
        self._stream: Any = None
        self._free: List[Any] = []
        self.latest_number = layout.LAST_EVENT
        self._anchor: Any = None
        # When an event was last found pending: events that were queued behind it by then were pending, too.
        self._busy_ns = 0
        self._busy_stream: Any = None

    def silence(self) -> None:
        """Emit nothing from now on, so that keeping the events keeps no ring alive."""
        self._emit = lambda kind, value, flag: None

    def use_stream(self, stream: Any) -> None:
        """Record in this stream from now on. Pending events of another device are dropped."""
        if self._stream is not None and self._stream.device_index != stream.device_index:
            self.pending.clear()
            self._free.clear()
            self._anchor = None
        self._stream = stream

    def next_number(self) -> int:
        """A number for an event; 0 when there are POOL events, the anchor among them, and none is free."""
        used = len(self.pending) + (self._anchor is not None)  # an event lost to an interruption no longer counts
        if not self._free and used >= POOL:
            return 0
        self.latest_number = layout.FIRST_EVENT if self.latest_number >= layout.LAST_EVENT else self.latest_number + 1
        return self.latest_number

    def pooled_event(self) -> Any:
        return self._free.pop() if self._free else self._device.new_event()

    def add_recorded(self, number: int, event: Any, stream_idle: bool, recorded_ns: int) -> None:
        """Add an event that was recorded after ``recorded_ns``; ``stream_idle``: nothing was queued just before."""
        took_us = (self._now_ns() - recorded_ns) // 1000 + 1
        self.pending.append(Pending(number, event, self._stream, stream_idle, recorded_ns, took_us))
        if len(self.pending) > CROWDED:
            self.poll(2)

    def poll(self, limit: int = POLL_LIMIT) -> None:
        """Emit the times of the oldest events, up to the first that is not done."""
        for _ in range(min(limit, len(self.pending))):
            first = self.pending[0]
            polled_ns = self._now_ns()
            if not self._device.is_done(first.event):
                self._busy_ns, self._busy_stream = polled_ns, first.stream
                return
            anchor = self._anchor
            elapsed_ns = None if anchor is None else round(self._device.elapsed_ms(anchor, first.event) * 1e6)
            self.pending.popleft()  # only after every call that an error of the device could come from
            self._resolve(first, elapsed_ns)

    def _resolve(self, done: Pending, elapsed_ns: Optional[int]) -> None:
        begins_count = elapsed_ns is None or elapsed_ns > NEW_COUNT_NS
        spare = done.event
        if begins_count or (elapsed_ns or 0) >= ANCHOR_NS:
            spare, self._anchor = self._anchor, spare
        if begins_count:
            self._emit(layout.GPU_ANCHOR, layout.pack_gpu_anchor(done.stream.device_index, None), done.number)
            self._emit_time(done, 0)
        elif elapsed_ns is not None and elapsed_ns >= 0:
            self._emit_time(done, elapsed_ns)
            if spare is not done.event:
                self._emit(layout.GPU_ANCHOR, layout.pack_gpu_anchor(done.stream.device_index, elapsed_ns), done.number)
        # otherwise another stream reached it before the anchor's stream reached the anchor
        if spare is not None:
            self._free.append(spare)

    def _emit_time(self, done: Pending, elapsed_ns: int) -> None:
        gap_us: Optional[int] = None
        if done.stream_idle:
            gap_us = done.took_us
        elif done.recorded_ns < self._busy_ns and done.stream == self._busy_stream:
            gap_us = (self._now_ns() - self._busy_ns) // 1000 + _EMIT_US
        if gap_us is not None and gap_us > layout.MAX_GAP_US:
            gap_us = None
        self._emit(layout.GPU_TIME, layout.pack_gpu_time(elapsed_ns, gap_us, done.stream_idle), done.number)


#: Fewest steps timed in a row, so that a loop whose steps alternate is seen whole. If each step pays for its timing,
#: bursts follow each other without a pause.
BURST_STEPS = 8
#: Most events that are polled at a boundary within a step. An event's lead is bounded by when it was last found
#: pending and first found done: in a step with launches far ahead, only polls at boundaries show that.
BOUNDARY_POLL = 2
#: The clock does not pause for fewer steps than this.
SHORTEST_PAUSE_STEPS = 4
#: The interval at which the allocator's figures are read (by the loop's own time).
MEMORY_NS = 1_000_000_000
#: Most time charged for one boundary, and for one poll. If the queue of launches is full, recording waits for room, but
#: without it the next launch would have waited; and the time in which a thread has lost its core, or the GIL, is not
#: spent on us.
MAX_RECORD_COST_NS = 30_000
MAX_POLL_COST_NS = 300_000
#: How often a capture that begins in another thread checks at most if a record has ended, and the time between two
#: checks: 0.1 s in all, and more on a busy machine, where the record may wait for a core.
RELEASE_POLLS = 500
_RELEASE_POLL_S = 0.0002

#: Events that must never be freed: those of a failed device, and those of the process that this one was forked from.
abandoned: List[Any] = []


#: At most one part in this many of the training's time: 0.1 %, so that steps of 100 ms and more can all be timed.
GPU_TIME_PARTS = 1000
#: The approximate number of steps over which the mean step length is taken.
_MEAN_STEPS = 8
#: Most time that may be owed: some bursts.
_OWED_NS = 1_000_000_000

#: Places of a boundary: nested in another of its kind or of another thread, inside a step, or where a step begins.
NESTED, IN_STEP, STEP_BEGINS = 0, 1, 2

#: If no step has begun for this long, and for this many times the length of the step before, open backwards and
#: optimizer steps count as abandoned, and the loop may move to another thread.
STALE_NS = 60_000_000_000
STALE_STEPS = 4


class StepFollower:
    """Follows the loop's steps; ``place`` must see every boundary, nested ones and those of other threads included."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._steps = StepCounter()
        self._thread: Optional[int] = None
        self._begun_ns = 0  # when the step began
        self._stale_ns = STALE_NS
        self._backwards = 0  # ended in this step
        self.backwards = 0  # in the step before, while it was followed
        self._backwards_before = 0  # how many there were when the open optimizer step began
        self.forget_open()

    def forget_open(self) -> None:
        """Forget open backwards and optimizer steps, which may end unseen."""
        self._depth = 0  # how many backwards are open, nested ones included
        self._optimizer: Optional[int] = None  # the outermost optimizer whose step is open

    def place(self, kind: int, key: int) -> int:
        """The place of a boundary; ``key``: id of the optimizer."""
        if get_ident() != self._thread and not self._moves_here(kind):
            return NESTED
        if kind == FETCH_END:
            self.forget_open()
            return self._begin_step() if self._steps.begin_fetch() else IN_STEP
        if kind == BACKWARD_BEGIN:
            self._depth += 1
            if self._depth > 1 and not self._is_stale():
                return NESTED
            return self._begin_step() if self._steps.begin_backward() else IN_STEP
        if kind == BACKWARD_END:
            depth, self._depth = self._depth, max(0, self._depth - 1)
            if depth != 1:
                return NESTED
            self._backwards += 1
            self._steps.end_backward()
            return IN_STEP
        if kind == OPTIMIZER_BEGIN:
            return self._begin_optimizer(key)
        self._steps.end_optimizer_step()
        if self._optimizer != key:
            return NESTED
        self._optimizer = None
        return IN_STEP if self._depth == 0 else NESTED

    def _begin_step(self) -> int:
        self.backwards, self._backwards = self._backwards, 0
        self._backwards_before = -1
        begun_ns = self._now_ns()
        self._stale_ns = max(STALE_NS, STALE_STEPS * (begun_ns - self._begun_ns)) if self._begun_ns else STALE_NS
        self._begun_ns = begun_ns
        return STEP_BEGINS

    def _begin_optimizer(self, key: int) -> int:
        """Inside another optimizer's step (GradScaler's, a sharded one's) it is nested, unless a backward came between.

        Then the other step has raised, because a closure contains no step of another optimizer.
        """
        if self._optimizer not in (None, key) and self._backwards == self._backwards_before:
            return NESTED
        self._optimizer = key
        self._backwards_before = self._backwards
        return IN_STEP if self._depth == 0 else NESTED

    def _moves_here(self, kind: int) -> bool:
        """True if the loop runs in this thread from now on. A fetch does not show that: it may be ahead of time."""
        if kind not in (BACKWARD_BEGIN, OPTIMIZER_BEGIN) or not (self._thread is None or self._is_stale()):
            return False
        self._thread = get_ident()
        self._begun_ns = self._now_ns()
        self.forget_open()
        self._steps.updated = False
        return True

    def _is_stale(self) -> bool:
        """True if no step has begun for long; open backwards and optimizer steps are then forgotten."""
        now_ns = self._now_ns()
        if now_ns - self._begun_ns < self._stale_ns:
            return False
        self._begun_ns = now_ns
        self._depth = 1
        self._optimizer = None
        return True


class GpuClock:
    """``event_number`` and then ``record_event`` at every boundary; never raises, never waits for another thread.

    ``pause``, if given, is called with a number of backward passes in which the clock needs no boundary: following
    untimed steps takes 2 us a boundary while the code is cold.
    """

    def __init__(
        self,
        device: Any,
        emit: Emit,
        now_ns: Callable[[], int] = time.monotonic_ns,
        pause: Optional[Callable[[int], None]] = None,
    ) -> None:
        self.on = True
        self._device = device
        self._emit = emit
        self._now_ns = now_ns
        self._steps = StepFollower(now_ns)
        self._bucket = TokenBucket(GPU_TIME_PARTS, _MEAN_STEPS, _OWED_NS)
        self.events = EventChain(device, emit, now_ns)
        self._stream: Any = None  # of this burst
        self._left = 0  # steps of this burst that are still to be timed, the current one included
        self._memory_due_ns = 0
        self._pause = pause
        self._begun_steps = 0
        self._poll_due = False  # a step has begun
        # Taken around all code that touches the device. A call that gets no turn returns: it has interrupted the other
        # call.
        self._touching = Turn(self._touch)

    def event_number(self, kind: int, key: int = 0) -> int:
        """The number for this boundary's event, 0 if it gets none; ``key``: id of the optimizer."""
        if not self.on:
            return 0
        place = self._steps.place(kind, key)
        if place == NESTED or not (self._begin_step() if place == STEP_BEGINS else self._left):
            return 0
        number = self.events.next_number()
        if not number and self._poll_due:  # all events are pending: no record will follow
            self._touch(self._poll_timed)
        return number

    def record_event(self, number: int) -> None:
        """Record the event with this number, right after its boundary's marker."""
        if self.on:
            self._touch(self._record_and_poll, number)

    def _touch(self, function: Callable[..., bool], *arguments: int) -> None:
        turn = self._touching.take()
        if turn is None:
            return
        try:
            if attempt(function, *arguments) is None:
                self.close()  # an error of the device surfaces in the user's own next call
        finally:
            self._touching.release(turn)

    def close(self) -> None:
        """Turn off for good. Events are not freed: the device may have failed, or belong to another process."""
        self.on = False
        self.events.silence()
        abandoned.append(self.events)

    def wait_for_release(self) -> None:
        """Wait until no other thread touches the device, but briefly: a record may be waiting for the device itself."""
        for _ in range(RELEASE_POLLS):
            if not self._touching.is_taken():
                return
            time.sleep(_RELEASE_POLL_S)

    def _record_and_poll(self, number: int) -> bool:
        begun_ns = self._now_ns()
        self._record(number, begun_ns)
        self._bucket.spend(min(self._now_ns() - begun_ns, MAX_RECORD_COST_NS))
        return self._poll_timed() if self._poll_due else True

    def _record(self, number: int, begun_ns: int) -> None:
        device = self._device
        if device.is_capturing():
            return
        stream = device.stream()
        if self._stream is None and stream is not None:
            self._stream = stream
            self.events.use_stream(stream)
        elif stream is None or stream != self._stream:  # the duration between events of two streams is undefined
            self._left = 0
            return
        stream_idle = device.is_idle(stream)
        event = self.events.pooled_event()
        device.record(event, stream)
        self.events.add_recorded(number, event, stream_idle, begun_ns)
        if not self._poll_due:
            self.events.poll(BOUNDARY_POLL)

    def _begin_step(self) -> bool:
        """True if the step's first boundary is timed: as the first of this step, or as the end of the one before."""
        begun_ns = self._now_ns()
        self._begun_steps += 1
        self._bucket.pass_steps(self._begun_steps, begun_ns)
        timed = self._left > 0
        if not (timed or self._bucket.is_paid or self.events.pending or begun_ns >= self._memory_due_ns):
            self._consider_pause(begun_ns)
            return False
        self._poll_due = True
        self._left = max(0, self._left - 1)
        if not self._left and self._bucket.is_paid:
            self._left = BURST_STEPS
            if not timed:
                self._stream = None
        if timed or self._left:
            return True  # polled after the event is recorded, so that no fetch includes the poll's cost
        self._touch(self._poll_timed)
        return False

    def _consider_pause(self, now_ns: int) -> None:
        """Pause until the timing is paid for, or a reading of memory is due; the next step is not followed whole."""
        steps = min(self._bucket.steps_owed(), (self._memory_due_ns - now_ns) // max(1, self._bucket.mean_ns)) - 1
        if self._pause is not None and steps >= SHORTEST_PAUSE_STEPS and self._steps.backwards:
            self._begun_steps += steps
            self._steps.forget_open()
            self._pause(steps * self._steps.backwards)

    def _poll_timed(self) -> bool:
        """Report events that are done, and memory once a second; no other thread touches the device."""
        begun_ns = self._now_ns()
        memory_due = begun_ns >= self._memory_due_ns
        if (memory_due or self.events.pending) and not self._device.is_capturing():
            self.events.poll()
            if memory_due:
                stream: Optional[Any] = self._device.stream()
                figures = () if stream is None else self._device.memory() or ()
                for code, figure in enumerate(figures):  # see ``cuda.Memory``
                    if figure is not None and stream is not None:
                        self._emit(layout.TORCH_MEMORY, figure, stream.device_index << 4 | code)
                self._memory_due_ns = begun_ns + MEMORY_NS
        self._poll_due = False  # only here: an error of the device comes again
        self._bucket.spend(min(self._now_ns() - begun_ns, MAX_POLL_COST_NS))
        return True
