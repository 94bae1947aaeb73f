"""A discrete-event model of a CPU thread that launches work into the in-order streams of GPUs.

Time is simulated: hours pass in seconds. Because streams are in order and nothing later changes what was launched
before, the end of every piece of work is known the moment it is launched.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from dataclasses import dataclass, field

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000

#: So many launches may wait in a stream; one more makes the launch call itself wait.
QUEUE_LIMIT = 1024
#: From the end of a launch call to the work's beginning on an idle GPU.
LATENCY_NS = 3 * US
#: What an event on a stream takes there.
EVENT_NS = 500


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
    """Work in order; ``busy_ns`` is the length of all work launched so far, events left out."""

    gpu: Gpu
    number: int
    end_ns: int = 0
    busy_ns: int = 0
    ends: deque[int] = field(default_factory=deque)  # of what waits or runs

    def launch(self, duration_ns: int, cost_ns: int = 6 * US) -> None:
        """The CPU spends ``cost_ns`` on launching a kernel (or a copy) that takes the GPU ``duration_ns``."""
        self._push(duration_ns, cost_ns)
        self.busy_ns += duration_ns

    def _push(self, duration_ns: int, cost_ns: int) -> int:
        cpu, ends = self.gpu.cpu, self.ends
        cpu.now_ns += cost_ns
        while ends and ends[0] <= cpu.now_ns:
            ends.popleft()
        if len(ends) >= QUEUE_LIMIT:
            cpu.now_ns = ends.popleft()
        self.end_ns = max(self.end_ns, cpu.now_ns + LATENCY_NS) + duration_ns
        ends.append(self.end_ns)
        return self.end_ns

    def record(self, cost_ns: int = 3 * US) -> int:
        """An event; returns when the GPU comes to it."""
        return self._push(EVENT_NS, cost_ns)

    def wait(self, event_ns: int) -> None:
        """What is launched from now on starts after an event of another stream."""
        self.gpu.cpu.work(2 * US)
        self.end_ns = max(self.end_ns, event_ns)

    def synchronise(self) -> None:
        """The CPU waits until all is done, spinning: what ``item()`` and copies from pageable memory do."""
        self.gpu.cpu.wait_until(self.end_ns)
        self.gpu.cpu.work(5 * US)

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
    index: int = 0
    drift_ppm: float = 0.0
    epoch_ns: int = 77_000_000_000
    streams: dict[int, Stream] = field(default_factory=dict)

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
