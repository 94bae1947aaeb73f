"""A recorded training as a whole session: markers and GPU times, with samples and counters that belong to it."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import ceil

from tests.diagnosis.gpu import (
    BACKWARD,
    FETCH,
    FORWARD,
    IN_BACKWARD,
    IN_FETCH,
    IN_STEP,
    ITEM,
    LINES,
    MAKE,
    MODULE,
    STEP,
    TO_DEVICE,
    beside_steps,
)
from tests.gpu_simulator import machine
from tests.gpu_simulator.device import SimulatedDevice, StreamHandle
from tests.gpu_simulator.machine import SECOND, Cpu, Gpu
from tests.gpu_simulator.recorded_timeline import Timeline, blocking_copies, timeline, truth
from tests.gpu_simulator.recording import Mark
from tests.gpu_simulator.sessions import UUID
from tests.gpu_simulator.training import PID, Training
from tests.session.records import header, process, session_of
from tuimon.agent.gpu_clock import GpuClock
from tuimon.agent.ring import layout
from tuimon.records import Record
from tuimon.session.session import Session

#: Samples of a window: what py-spy takes in a second at its usual rate.
_SAMPLES = 100
#: Stacks by the boundary that was passed last.
_AFTER = {
    layout.FETCH_BEGIN: (FETCH, IN_FETCH),
    layout.FETCH_END: (FORWARD, MODULE),
    layout.BACKWARD_BEGIN: (BACKWARD, IN_BACKWARD),
    layout.BACKWARD_END: (MAKE,),
    layout.OPTIMIZER_BEGIN: (STEP, IN_STEP),
    layout.OPTIMIZER_END: (MAKE,),
}
_WAITS = {"synchronise": (ITEM,), "copy": (TO_DEVICE,)}


def records(name: str, *, counters: bool = True) -> list[Record]:
    """All records of a session, in order; ``counters``: with NVML's beside them."""
    training, marked = recorded(name)
    timeline = training.timeline
    busy = round(truth(name).kernel_ratio, 2)
    begun_s, world = marked[0].t - 1.0, timeline.recording.world_size
    ranks = {"rank": 0, "world_size": world} if world else {}
    sampled = ((list(ids), count) for ids, count in samples(timeline).items())
    return [
        header(pid=PID, cpu_count=8, t=begun_s),
        process(PID, t=begun_s, torch="2.13.0+cu130", gpu_uuids=[UUID], **ranks),
        LINES,
        *beside_steps(marked, busy if counters else None, *sampled),
    ]


@cache
def session(name: str, *, counters: bool = True) -> Session:
    """``records`` folded."""
    return session_of(*records(name, counters=counters))


def samples(timeline: Timeline) -> Counter[tuple[int, ...]]:
    """Stacks of the training thread at regular moments of a period."""
    waits = [wait for wait in timeline.waits if wait.kind in _WAITS and wait.by_main_thread]
    waits += blocking_copies(timeline.works)
    times = [mark.time_ns for mark in timeline.marks]
    found: Counter[tuple[int, ...]] = Counter()
    for number in range(_SAMPLES):
        at_ns = timeline.begin_ns + (2 * number + 1) * timeline.period_ns // (2 * _SAMPLES)
        waiting = next((_WAITS[w.kind] for w in waits if w.begin_ns <= at_ns < w.end_ns), None)
        kind = timeline.marks[bisect_right(times, at_ns) - 1].kind
        after = _AFTER[kind]
        if kind == layout.OPTIMIZER_END and all(mark.kind != layout.FETCH_END for mark in timeline.marks):
            after = _AFTER[layout.FETCH_END]
        found[waiting if waiting is not None and kind != layout.BACKWARD_BEGIN else after] += 1
    return found


_UNTIMED = (layout.FETCH_BEGIN,)
#: How long a run is that is judged, at least; of so many steps the few at its ends that are not timed are 1 %.
_SECONDS, _STEPS = 30.0, 300
#: What torch has pinned where a training copies from pinned memory: a few batches.
_PINNED_BYTES = 64 << 20


class RecordedStream:
    """The main stream of the recorded training, as far as the device asks."""

    def __init__(self, cpu: Cpu, timeline: Timeline) -> None:
        self.cpu = cpu
        self.timeline = timeline
        self.moved_ns = cpu.now_ns - timeline.begin_ns

    @property
    def drained(self) -> bool:
        """Whether nothing is left to do."""
        return self.reached_ns() <= self.cpu.now_ns

    def record(self, cost_ns: int) -> int:
        """An event; returns when the GPU comes to it."""
        called_ns = self.cpu.now_ns
        self.cpu.work(cost_ns)
        reached_ns = self.timeline.reached_ns(called_ns - self.moved_ns) + self.moved_ns
        return max(reached_ns, self.cpu.now_ns) + machine.current.event_ns

    def reached_ns(self) -> int:
        """When the GPU has done all that was launched until now."""
        return self.timeline.reached_ns(self.cpu.now_ns - self.moved_ns) + self.moved_ns

    def marks(self) -> Iterator[Mark]:
        """The boundaries of the loop, without end."""
        moved_ns = self.moved_ns
        while True:
            for mark in self.timeline.marks:
                yield mark._replace(time_ns=mark.time_ns + moved_ns)
            moved_ns += self.timeline.period_ns


class RecordedDevice(SimulatedDevice):
    """The GPU of a recorded training."""

    def __init__(self, cpu: Cpu, gpus: list[Gpu], stream: RecordedStream) -> None:
        super().__init__(cpu, gpus)
        self.recorded = stream

    def stream_of(self, handle: StreamHandle) -> RecordedStream:  # type: ignore[override]
        return self.recorded


class RecordedTraining(Training):
    """Its steps repeated for as long as ``repeat`` is asked to."""

    def __init__(self, name: str, drift_ppm: float = 20.0) -> None:
        super().__init__(drift_ppm)
        self.timeline = timeline(name)
        self.ring.world_size = self.timeline.recording.world_size
        recorded = RecordedStream(self.cpu, self.timeline)
        self.device = RecordedDevice(self.cpu, self.gpus, recorded)
        self.clock = GpuClock(self.device, self.emit, lambda: self.cpu.now_ns)
        self.marks = recorded.marks()
        self.frees = sorted(
            wait.begin_ns - self.timeline.begin_ns for wait in self.timeline.waits if wait.kind == "free"
        )
        self.begun_ns = self.cpu.now_ns

    def repeat(self, seconds: float) -> list[Record]:
        """Go on for so long; returns the records of it."""
        return self.run(lambda _: self._next_mark(), seconds)

    def _count_frees(self) -> None:
        """What torch's allocator would count by now."""
        periods, rest_ns = divmod(self.cpu.now_ns - self.begun_ns, self.timeline.period_ns)
        frees = periods * len(self.frees) + bisect_right(self.frees, rest_ns)
        self.device.allocator = (3 << 30, 5 << 30, 0, 0, frees, _PINNED_BYTES * self.timeline.recording.pinned)

    def _next_mark(self) -> None:
        self._count_frees()
        mark = next(self.marks)
        self.cpu.wait_until(mark.time_ns)
        if mark.kind in _UNTIMED:
            self.emit(mark.kind, mark.value)
        else:
            self.boundary(mark.kind, mark.value)


@cache
def recorded(name: str) -> tuple[RecordedTraining, tuple[Record, ...]]:
    """A recorded training after whole periods, so that what is timed is what the truth is of; and its records."""
    training = RecordedTraining(name)
    period_s = training.timeline.period_ns / SECOND
    seconds = max(ceil(_SECONDS / period_s), ceil(_STEPS / training.timeline.steps)) * period_s
    return training, (*training.repeat(seconds), *training.end())
