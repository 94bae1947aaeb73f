"""The simulated GPUs as the GPU clock of the agent sees a device: streams, events, and what calls cost."""

import random
from typing import NamedTuple

from tests.gpu_simulator.machine import US, Cpu, Gpu, as_float32


class StreamHandle(NamedTuple):
    """What the current stream looks like from outside: equal for one and the same stream."""

    device_index: int
    number: int


class Event:
    """A pooled event; recording it anew forgets what it was."""

    __slots__ = ("gpu", "reached_ns")

    def __init__(self) -> None:
        self.gpu: Gpu | None = None
        self.reached_ns = 0


class SimulatedDevice:
    """The adapter that ``GpuClock`` is given in place of torch's."""

    def __init__(self, cpu: Cpu, gpus: list[Gpu]) -> None:
        self.cpu = cpu
        self.gpus = gpus
        self.current = StreamHandle(0, 0)
        self.lost = False  # events never get done: the device hangs
        self.slow_record_ns = 0  # so long at most the thread loses its core, or the GIL, while it records
        self.allocator: tuple[int, ...] = (3 << 30, 5 << 30, 0, 0)
        self.events = 0
        self.random = random.Random(5)

    def stream(self) -> StreamHandle:
        """The current stream."""
        self.cpu.work(0.7 * US)
        return self.current

    def is_capturing(self) -> bool:
        """Whether the current stream is being captured into a graph."""
        self.cpu.work(0.5 * US)
        return False

    def is_idle(self, stream: StreamHandle) -> bool:
        """Whether a stream has nothing left to do."""
        self._query()
        return self.stream_of(stream).drained

    def new_event(self) -> Event:
        """An event that takes times."""
        self.cpu.work(1 * US)
        self.events += 1
        return Event()

    def record(self, event: Event, stream: StreamHandle) -> None:
        """Put the event behind all that was launched."""
        self.cpu.work(self.random.uniform(0, self.slow_record_ns))
        event.gpu = self.gpus[stream.device_index]
        cost_ns = self.random.uniform(*event.gpu.hardware.record_ns)
        event.reached_ns = self.stream_of(stream).record(round(cost_ns))

    def is_done(self, event: Event) -> bool:
        """Whether the GPU has come to the event."""
        self._query()
        return not self.lost and event.reached_ns <= self.cpu.now_ns

    def elapsed_ms(self, anchor: Event, event: Event) -> float:
        """From one event to the other on the GPU's clock, as a float32 of ms."""
        assert anchor.gpu is event.gpu is not None
        assert max(anchor.reached_ns, event.reached_ns) <= self.cpu.now_ns
        self.cpu.work(2 * US)
        elapsed_ns = event.gpu.clock_ns(event.reached_ns) - anchor.gpu.clock_ns(anchor.reached_ns)
        return as_float32(elapsed_ns / 1e6)

    def memory(self) -> tuple[int, ...]:
        """Bytes allocated, reserved; retries, failures; where they are counted, calls of cudaFree and pinned bytes."""
        self.cpu.work(5 * US)
        return self.allocator

    def _query(self) -> None:
        self.cpu.work(self.random.uniform(*self.gpus[0].hardware.query_ns))

    def stream_of(self, handle: StreamHandle):
        return self.gpus[handle.device_index].stream(handle.number)
