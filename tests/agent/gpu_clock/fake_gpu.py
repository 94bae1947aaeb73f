"""A GPU that does what a test says, and a loop whose boundaries are marked as the hooks do it."""

import struct
from typing import NamedTuple

from tuimon.agent.gpu_clock import GpuClock
from tuimon.agent.ring import layout

MS = 1_000_000
SECOND = 1000 * MS
#: The boundaries of a step.
STEP = (layout.FETCH_END, layout.BACKWARD_BEGIN, layout.BACKWARD_END, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END)


class FakeStream(NamedTuple):
    device_index: int
    number: int


class FakeEvent:
    def __init__(self):
        self.at_ns = None


class FakeGpu:
    """In order, as far behind the CPU as ``behind_ns``; every call costs ``cost_ns``."""

    def __init__(self, behind_ns=0, cost_ns=0):
        self.now_ns = 1_000_000_000
        self.behind_ns = behind_ns
        self.cost_ns = cost_ns
        self.current = FakeStream(0, 0)
        self.in_capture = False
        self.error = None
        self.made = []
        self.calls = []  # names of all methods called
        self.figures = (10, 20, 1, 0)

    def _called(self, name):
        self.calls.append(name)
        self.now_ns += self.cost_ns
        if self.error is not None:
            raise self.error

    def _touch(self, name):
        assert not self.in_capture, f"{name} during a capture"
        self._called(name)

    def stream(self):
        self._called("stream")
        return self.current

    def is_capturing(self):
        self._called("is_capturing")
        return self.in_capture

    def is_idle(self, stream):
        self._touch("is_idle")
        return self.behind_ns == 0

    def new_event(self):
        self._touch("new_event")
        self.made.append(FakeEvent())
        return self.made[-1]

    def record(self, event, stream):
        self._touch("record")
        event.at_ns = self.now_ns + self.behind_ns

    def is_done(self, event):
        self._touch("is_done")
        return event.at_ns <= self.now_ns

    def elapsed_ms(self, anchor, event):
        self._touch("elapsed_ms")
        assert self.now_ns >= event.at_ns
        return struct.unpack("f", struct.pack("f", (event.at_ns - anchor.at_ns) / 1e6))[0]

    def memory(self):
        self._touch("memory")
        return self.figures


class Marked(NamedTuple):
    time_ns: int
    kind: int
    flag: int
    value: int


class FakeLoop:
    """A training loop beside a FakeGpu; ``marked`` is what went into the ring."""

    def __init__(self, gpu, step_ns=100_000_000):
        self.gpu = gpu
        self.step_ns = step_ns
        self.marked = []
        self.clock = GpuClock(gpu, self.emit, lambda: gpu.now_ns)

    def emit(self, kind, value, flag):
        self.marked.append(Marked(self.gpu.now_ns, kind, flag, value))
        self.gpu.now_ns += 1000

    def boundary(self, kind, key=0):
        """Returns the number of its event."""
        number = self.clock.event_number(kind, key)
        self.emit(kind, key, number)
        if number:
            self.clock.record_event(number)
        return number

    def step(self, boundaries=STEP):
        """Returns how many of its boundaries were timed."""
        numbers = []
        for kind in boundaries:
            numbers.append(self.boundary(kind))
            self.gpu.now_ns += self.step_ns // len(boundaries)
        return sum(map(bool, numbers))

    def steps(self, count, boundaries=STEP):
        """Returns for each how many of its boundaries were timed."""
        return [self.step(boundaries) for _ in range(count)]

    def times(self):
        """number -> (its EventTime, when it was emitted)."""
        return {m.flag: (layout.unpack_gpu_time(m.value), m.time_ns) for m in self.marked if m.kind == layout.GPU_TIME}

    def anchors(self):
        """(number, device, elapsed_ns) of every GPU_ANCHOR."""
        return [(m.flag, *layout.unpack_gpu_anchor(m.value)) for m in self.marked if m.kind == layout.GPU_ANCHOR]

    def boundaries(self):
        """number -> marker, of all that were timed."""
        return {m.flag: m for m in self.marked if m.kind in STEP and m.flag}
