"""Events that the device is still to come to, and what is told of them when it has.

GPU_TIME counts from an anchor: an event as well, changed every few seconds, because torch gives times as float32 of ms.
The first event of a count is its own anchor, GPU_ANCHOR before GPU_TIME; a later anchor is told of after its own time.
"""

from collections import deque
from typing import Any, Callable, Deque, List, NamedTuple, Optional

from ..ring.layout import FIRST_EVENT, GPU_ANCHOR, GPU_TIME, LAST_EVENT, pack_gpu_anchor, pack_gpu_time

Emit = Callable[[int, int, int], None]

#: Events that wait, the anchor included.
POOL = 256
#: So many are asked for in one look at most.
LOOK = 16
#: When so many wait, two are asked for whenever another is recorded: a turn may have hundreds of boundaries.
CROWD = 128
#: An event so long after its anchor is the next: half a microsecond is the resolution then.
ANCHOR_NS = 5_000_000_000
#: After so long a pause the resolution is 15 us: a new count begins.
PAUSE_NS = 260_000_000_000
#: Between the moment that a gap is reckoned to and the time stamp of the marker.
_EMIT_US = 2


class Pending(NamedTuple):
    """An event that was recorded, and what was known of its stream just before."""

    number: int
    event: Any
    stream: Any
    drained: bool
    recorded_ns: int  # not before this,
    took_us: int  # and not later than so long after it


class EventChain:
    """Events of one device at a time, in the order of their recording."""

    def __init__(self, device: Any, emit: Emit, now_ns: Callable[[], int]) -> None:
        self.pending: Deque[Pending] = deque()
        self._device = device
        self._emit = emit
        self._now_ns = now_ns
        self._stream: Any = None
        self._free: List[Any] = []
        self._made = 0
        self._number = LAST_EVENT
        self._anchor: Any = None
        # The last time that an event was seen not done: what was recorded before in the same stream was not, either.
        self._busy_ns = 0
        self._busy_stream: Any = None

    def use(self, stream: Any) -> None:
        """What follows is recorded in this stream. On another device all that was is dropped."""
        if self._stream is not None and self._stream.device_index != stream.device_index:
            self.pending.clear()
            self._free.clear()
            self._anchor = None
            self._made = 0
        self._stream = stream

    def next_number(self) -> int:
        """A number for an event; 0: all that there may be are waiting."""
        if not self._free and self._made >= POOL:
            return 0
        self._number = FIRST_EVENT if self._number >= LAST_EVENT else self._number + 1
        return self._number

    def take(self) -> Any:
        """An event to record."""
        if self._free:
            return self._free.pop()
        self._made += 1
        return self._device.new_event()

    def add(self, number: int, event: Any, drained: bool, recorded_ns: int) -> None:
        """It was recorded, not before ``recorded_ns``; the stream had nothing to do before it, or had."""
        took_us = (self._now_ns() - recorded_ns) // 1000 + 1
        self.pending.append(Pending(number, event, self._stream, drained, recorded_ns, took_us))
        if len(self.pending) > CROWD:
            self.resolve(2)

    def resolve(self, most: int = LOOK) -> None:
        """Tell of the oldest that are done."""
        for _ in range(min(most, len(self.pending))):
            first = self.pending[0]
            look_ns = self._now_ns()
            if not self._device.done(first.event):
                self._busy_ns, self._busy_stream = look_ns, first.stream
                return
            self.pending.popleft()
            self._tell(first)

    def _tell(self, met: Pending) -> None:
        if self._anchor is None:
            self._begin_count(met)
            return
        elapsed_ns = round(self._device.elapsed_ms(self._anchor, met.event) * 1e6)
        if elapsed_ns > PAUSE_NS:
            self._free.append(self._anchor)
            self._begin_count(met)
        elif elapsed_ns < 0:  # another stream, which came to it before the anchor's came to the anchor
            self._free.append(met.event)
        else:
            self._tell_time(met, elapsed_ns)
            self._move_anchor(met, elapsed_ns)

    def _begin_count(self, met: Pending) -> None:
        self._anchor = met.event
        self._emit(GPU_ANCHOR, pack_gpu_anchor(met.stream.device_index, None), met.number)
        self._tell_time(met, 0)

    def _move_anchor(self, met: Pending, elapsed_ns: int) -> None:
        spare = met.event
        if elapsed_ns >= ANCHOR_NS:
            spare, self._anchor = self._anchor, spare
            self._emit(GPU_ANCHOR, pack_gpu_anchor(met.stream.device_index, elapsed_ns), met.number)
        self._free.append(spare)

    def _tell_time(self, met: Pending, elapsed_ns: int) -> None:
        gap_us: Optional[int] = None
        if met.drained:
            gap_us = met.took_us
        elif met.recorded_ns < self._busy_ns and met.stream == self._busy_stream:
            gap_us = (self._now_ns() - self._busy_ns) // 1000 + _EMIT_US
        self._emit(GPU_TIME, pack_gpu_time(elapsed_ns, gap_us, met.drained), met.number)
