"""A discrete-event model of a CPU thread that launches work into the in-order streams of GPUs.

Time is simulated: hours pass in seconds. Because streams are in order and nothing later changes what was launched
before, the end of every piece of work is known the moment it is launched.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000
#: Share of launches that take longer to start.
_LATE = 0.05


class Hardware(NamedTuple):
    """What GPUs and their drivers differ in, with the values of recorded trainings; times in ns."""

    latency_ns: int  # from the end of a launch call to the work's beginning on an idle GPU
    late_latency_ns: int  # the same of one launch in twenty
    gap_ns: int  # between works that are queued
    event_ns: int  # what an event takes on a stream
    queue_limit: int  # so many launches may wait in a stream
    room: int  # a launch that finds the queue full waits until so many works are done
    return_ns: int  # from the end of the work to the return of a call that waits for it
    record_ns: tuple[int, int]  # what recording an event takes the CPU, from and to
    query_ns: tuple[int, int]  # and asking for one, or for the stream


#: CUDA on V100 at its quickest.
QUICK = Hardware(2 * US, 2 * US, 0, 500, 1022, 1, 5 * US, (1_000, 1_500), (500, 1_000))
TYPICAL = Hardware(3 * US, 3 * US, 0, 500, 1024, 1, 5 * US, (2 * US, 4 * US), (1 * US, 2 * US))
#: HIP on MI300X, and the slowest of each kind: one launch in six waits where the queue is full, for 0.1 to 2 ms.
SLOW = Hardware(9_500, 10 * US, 3 * US, 1_500, 1781, 6, 13 * US, (2_000, 4_000), (1_500, 3_000))

#: What simulated trainings have unless a test says otherwise.
current = TYPICAL


class Cpu:
    """One thread's clock, in ns of ``time.monotonic_ns``."""

    def __init__(self, start_ns: int = 1000 * SECOND, seed: int = 1) -> None:
        self.now_ns = start_ns
        self.random = random.Random(seed)

    def work(self, duration_ns: float, spread: float = 0.0) -> None:
        """The thread is busy, or waits for something else than a GPU; ``spread`` is the relative deviation."""
        if spread:
            duration_ns *= max(0.1, self.random.gauss(1.0, spread))
        self.now_ns += int(duration_ns)

    def wait_until(self, time_ns: int) -> None:
        """The thread waits for a GPU."""
        self.now_ns = max(self.now_ns, time_ns)


@dataclass(eq=False, slots=True)
class Stream:
    """Work in order; ``busy_ns`` is the length of all work launched so far, events left out.

    From one queued work to the next the GPU takes a moment, in which it has something to do: that is no idle time.
    """

    gpu: Gpu
    number: int
    end_ns: int = 0
    busy_ns: int = 0
    ends: deque[int] = field(default_factory=deque)  # of what waits or runs

    def launch(self, duration_ns: int, cost_ns: int = 6 * US, count: int = 1) -> None:
        """``count`` times the CPU launches, in ``cost_ns``, a kernel or copy that takes the GPU ``duration_ns``."""
        self._push(duration_ns, cost_ns, count)
        self.busy_ns += duration_ns * count

    def _push(self, duration_ns: int, cost_ns: int, count: int = 1) -> int:
        gpu, ends = self.gpu, self.ends
        kind, gap_ns, limit = gpu.hardware, gpu.hardware.gap_ns, gpu.hardware.queue_limit
        now_ns, end_ns = gpu.cpu.now_ns, self.end_ns
        latency_ns, late_ns, draw = kind.latency_ns, kind.late_latency_ns, gpu.random.random
        is_drawn = late_ns != latency_ns
        for _ in range(count):  # half of the time that simulations take
            now_ns += cost_ns
            while ends and ends[0] <= now_ns:
                ends.popleft()
            if len(ends) >= limit:
                for _ in range(kind.room):
                    now_ns = ends.popleft()
            start_ns = now_ns + (late_ns if is_drawn and draw() < _LATE else latency_ns)
            ready_ns = end_ns + gap_ns
            if ready_ns > start_ns:
                self.busy_ns += min(gap_ns, ready_ns - start_ns)
                start_ns = ready_ns
            end_ns = start_ns + duration_ns
            ends.append(end_ns)
        gpu.cpu.now_ns, self.end_ns = now_ns, end_ns
        return end_ns

    def record(self, cost_ns: int = 3 * US) -> int:
        """An event; returns when the GPU comes to it."""
        return self._push(self.gpu.hardware.event_ns, cost_ns)

    def wait(self, event_ns: int) -> None:
        """What is launched from now on starts after an event of another stream."""
        self.gpu.cpu.work(2 * US)
        self.end_ns = max(self.end_ns, event_ns)

    def synchronise(self) -> None:
        """The CPU waits until all is done, spinning: what ``item()`` and copies from pageable memory do."""
        self.gpu.cpu.wait_until(self.end_ns)
        self.gpu.cpu.work(self.gpu.hardware.return_ns)

    def copy(self, duration_ns: int, cost_ns: int = 10 * US) -> None:
        """A copy from pageable memory: the call returns when the GPU has done it."""
        self.launch(duration_ns, cost_ns)
        self.synchronise()

    def reached_ns(self) -> int:
        """When the GPU has done all that was launched until now."""
        return max(self.end_ns, self.gpu.cpu.now_ns)

    @property
    def drained(self) -> bool:
        """Whether nothing is left to do."""
        return self.end_ns <= self.gpu.cpu.now_ns


@dataclass(eq=False, slots=True)
class Gpu:
    """One GPU with a clock of its own, which drifts against the CPU's."""

    cpu: Cpu
    drift_ppm: float = 0.0
    epoch_ns: int = 77_000_000_000
    streams: dict[int, Stream] = field(default_factory=dict)
    hardware: Hardware = field(default_factory=lambda: current)
    random: random.Random = field(default_factory=lambda: random.Random(3))

    def free(self, duration_ns: int) -> None:
        """``cudaFree``, as an allocator without room calls it: it waits for all work of the GPU."""
        self.cpu.wait_until(max((stream.end_ns for stream in self.streams.values()), default=0))
        self.cpu.work(duration_ns)

    def stream(self, number: int = 0) -> Stream:
        """A stream; 0 is the default one."""
        return self.streams.setdefault(number, Stream(self, number))

    def clock_ns(self, time_ns: int) -> int:
        """What this GPU's clock shows at a moment of the CPU's: it ticks every half microsecond."""
        exact = self.epoch_ns + time_ns + round(time_ns * self.drift_ppm / 1e6)
        return exact // 500 * 500


def as_float32(value: float) -> float:
    """Rounded as ``torch.cuda.Event.elapsed_time`` rounds."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
