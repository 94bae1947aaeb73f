"""Recorded events that the GPU has still to reach, and the times it reached them at.

GPU_TIME counts from an anchor: also an event, replaced every few seconds because torch gives times as float32 of ms.
A count's first event is its own anchor, GPU_ANCHOR before GPU_TIME; a later anchor follows its own GPU_TIME.
"""

from collections import deque
from typing import Any, Callable, Deque, List, NamedTuple, Optional

from ..ring.layout import FIRST_EVENT, GPU_ANCHOR, GPU_TIME, LAST_EVENT, MAX_GAP_US, pack_gpu_anchor, pack_gpu_time

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
#: From the moment that a gap is computed for to the time stamp of the marker.
_EMIT_US = 2


def _emit_nothing(kind: int, value: int, flag: int) -> None:
    """The clock is off."""


class Pending(NamedTuple):
    """A recorded event, and what was known of its stream just before."""

    number: int
    event: Any
    stream: Any
    stream_idle: bool
    recorded_ns: int  # not before this,
    took_us: int  # and at most so long after it


class EventChain:
    """Events of one device at a time, in the order they were recorded."""

    def __init__(self, device: Any, emit: Emit, now_ns: Callable[[], int]) -> None:
        self.pending: Deque[Pending] = deque()
        self._device = device
        self._emit = emit
        self._now_ns = now_ns
        self._stream: Any = None
        self._free: List[Any] = []
        self.latest_number = LAST_EVENT
        self._anchor: Any = None
        # The last time that an event was found pending: events recorded before then in the same stream were, too.
        self._busy_ns = 0
        self._busy_stream: Any = None

    def silence(self) -> None:
        """Emit nothing from now on: whoever keeps the events keeps no ring with them."""
        self._emit = _emit_nothing

    def use_stream(self, stream: Any) -> None:
        """Record in this stream from now on. Pending events of another device are dropped."""
        if self._stream is not None and self._stream.device_index != stream.device_index:
            self.pending.clear()
            self._free.clear()
            self._anchor = None
        self._stream = stream

    def next_number(self) -> int:
        """A number for an event; 0 when there are POOL events, the anchor among them, and none is free."""
        used = len(self.pending) + (self._anchor is not None)  # an event lost to an interruption counts no more
        if not self._free and used >= POOL:
            return 0
        self.latest_number = FIRST_EVENT if self.latest_number >= LAST_EVENT else self.latest_number + 1
        return self.latest_number

    def pooled_event(self) -> Any:
        """An event to record."""
        return self._free.pop() if self._free else self._device.new_event()

    def add_recorded(self, number: int, event: Any, stream_idle: bool, recorded_ns: int) -> None:
        """Follow an event that was recorded after ``recorded_ns``, and whether its stream was idle just before."""
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
            self.pending.popleft()  # after all that an error of the device could come from
            self._resolve(first, elapsed_ns)

    def _resolve(self, done: Pending, elapsed_ns: Optional[int]) -> None:
        if elapsed_ns is None:
            self._begin_count(done)
        elif elapsed_ns > NEW_COUNT_NS:
            self._free.append(self._anchor)
            self._begin_count(done)
        elif elapsed_ns < 0:  # of another stream, which reached it before the anchor's reached the anchor
            self._free.append(done.event)
        else:
            self._emit_time(done, elapsed_ns)
            self._move_anchor(done, elapsed_ns)

    def _begin_count(self, done: Pending) -> None:
        self._anchor = done.event
        self._emit(GPU_ANCHOR, pack_gpu_anchor(done.stream.device_index, None), done.number)
        self._emit_time(done, 0)

    def _move_anchor(self, done: Pending, elapsed_ns: int) -> None:
        spare = done.event
        if elapsed_ns >= ANCHOR_NS:
            spare, self._anchor = self._anchor, spare
            self._emit(GPU_ANCHOR, pack_gpu_anchor(done.stream.device_index, elapsed_ns), done.number)
        self._free.append(spare)

    def _emit_time(self, done: Pending, elapsed_ns: int) -> None:
        gap_us: Optional[int] = None
        if done.stream_idle:
            gap_us = done.took_us
        elif done.recorded_ns < self._busy_ns and done.stream == self._busy_stream:
            gap_us = (self._now_ns() - self._busy_ns) // 1000 + _EMIT_US
        if gap_us is not None and gap_us > MAX_GAP_US:
            gap_us = None
        self._emit(GPU_TIME, pack_gpu_time(elapsed_ns, gap_us, done.stream_idle), done.number)
