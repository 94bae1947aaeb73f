"""A training thread in simulated time: its boundaries are marked and timed as the hooks do it, its truth is kept."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.gpu_simulator.device import SimulatedDevice, StreamHandle
from tests.gpu_simulator.machine import MS, SECOND, US, Cpu, Gpu, Stream
from tests.sources.markers.literal_ring import columns_of
from tuimon.agent.gpu_clock import GpuClock
from tuimon.agent.ring import layout
from tuimon.agent.ring.reader import Columns
from tuimon.records import Record
from tuimon.sources.markers.follower import RingFollower

TID = 7
PID = 100


class SimulatedRing:
    """The ring, as far as its follower asks."""

    start_ticks = 0

    def __init__(self, pid: int = PID, world_size: int | None = None) -> None:
        self.pid = pid
        self.world_size = world_size
        self.waiting: list[layout.Marker] = []
        self.dropped = 0
        self.dropping = 0  # so many more, when it is read

    def read_columns(self) -> Columns:
        markers, self.waiting = self.waiting, []
        self.dropped, self.dropping = self.dropped + self.dropping, 0
        return columns_of(markers)

    def held_until_ns(self) -> int:
        return 0

    def name(self, number: int) -> str:
        return "?"

    def meta(self) -> dict[str, object]:
        return {} if self.world_size is None else {"world_size": self.world_size}

    def loading(self) -> Iterator[object]:
        return iter(())


class Boundary(NamedTuple):
    """The truth of one boundary: when the CPU came to it, when the GPU did."""

    kind: int
    cpu_ns: int
    gpu_ns: int
    timed: bool  # the GPU clock has put an event there


class Truth:
    """What really happened on the GPU, by the program's own labels."""

    def __init__(self) -> None:
        self.span_ns: Counter[str] = Counter()
        self.idle_ns: Counter[str] = Counter()
        self.boundaries: list[Boundary] = []
        self.label: str | None = None
        self.since = (0, 0)  # when the GPU came to the beginning of what is labelled, and its work until then

    def enter(self, label: str, stream: Stream) -> None:
        """From here on the program is in this phase."""
        reached = (stream.reached_ns(), stream.busy_ns)
        if self.label is not None:
            span_ns = reached[0] - self.since[0]
            self.span_ns[self.label] += span_ns
            self.idle_ns[self.label] += max(0, span_ns - (reached[1] - self.since[1]))
        self.label, self.since = label, reached

    def share(self, name: str) -> float:
        """Share of a phase in the GPU's time, evaluation left out."""
        return self.span_ns[name] / self.total_ns

    @property
    def total_ns(self) -> int:
        """The GPU's time in steps."""
        return self.span_ns.total() - self.span_ns["eval"]


class Training:
    """Programs call ``fetch``, ``backward`` and ``step`` around what they launch."""

    def __init__(
        self, drift_ppm: float = 0.0, gpus: int = 1, seed: int = 1, pid: int = PID, world_size: int | None = None
    ) -> None:
        self.cpu = Cpu(seed=seed)
        self.gpus = [Gpu(self.cpu, drift_ppm * (-1) ** n, epoch_ns=(77 + n) * SECOND) for n in range(gpus)]
        self.device = SimulatedDevice(self.cpu, self.gpus)
        self.ring = SimulatedRing(pid, world_size)
        self.clock = GpuClock(self.device, self.emit, lambda: self.cpu.now_ns)
        self.follower = RingFollower(self.ring, 1.0, self.cpu.now_ns)  # type: ignore[arg-type]  # as far as it asks
        self.interrupted_ns: Callable[[], float] = lambda: 0.0  # between a marker and its event
        self.truth = Truth()
        self.records: list[Record] = []
        self.markers: deque[layout.Marker] = deque(maxlen=100_000)  # the latest
        self.look_ns = self.cpu.now_ns

    # -- what a program does

    @property
    def stream(self) -> Stream:
        """The current stream."""
        return self.device.stream_of(self.device.current)

    def use(self, device_index: int = 0, number: int = 0) -> None:
        """Make another stream the current one."""
        self.device.current = StreamHandle(device_index, number)

    def kernels(self, count: int, gpu_ns: int, cpu_ns: int = 6 * US) -> None:
        """Launch like kernels one after the other."""
        self.stream.launch(gpu_ns, cpu_ns, count)

    def passes(self, forward: Sequence[int], backward: Sequence[int], update: Sequence[int]) -> None:
        """Forward, backward and update of like kernels; each: see ``kernels``."""
        self.kernels(*forward)
        self.backward(lambda: self.kernels(*backward))
        self.step(lambda: self.kernels(*update))

    def fetch(self, wait_ns: float, spread: float = 0.0, iterator: int = 1, label: str = "forward") -> None:
        """A batch from a DataLoader; what follows is ``label``."""
        self.truth.enter("data" if label != "eval" else "eval", self.stream)
        self.emit(layout.FETCH_BEGIN, iterator)
        self.cpu.work(wait_ns, spread)
        self.truth.enter(label, self.stream)
        self.boundary(layout.FETCH_END, iterator)

    def exhausted(self, iterator: int = 1) -> None:
        """The DataLoader has no more batches."""
        self.emit(layout.FETCH_BEGIN, iterator)
        self.cpu.work(0.1 * MS)
        self.emit(layout.FETCH_END, iterator, 1)

    def backward(self, work: Callable[[], None], then: str = "other") -> None:
        """``loss.backward()``."""
        outer = self.begin_backward()
        work()
        self.end_backward(then if outer != "optimizer" else "optimizer")

    def begin_backward(self) -> str:
        """It is called; returns the label of what calls it."""
        outer = self.truth.label or "other"
        self.truth.enter("backward", self.stream)
        self.boundary(layout.BACKWARD_BEGIN)
        return outer

    def end_backward(self, then: str = "other") -> None:
        """It returns."""
        self.truth.enter(then, self.stream)
        self.boundary(layout.BACKWARD_END)

    def step(self, work: Callable[[], None], optimizer: int = 1) -> None:
        """``optimizer.step()``."""
        self.truth.enter("optimizer", self.stream)
        self.boundary(layout.OPTIMIZER_BEGIN, optimizer)
        work()
        self.truth.enter("other", self.stream)
        self.boundary(layout.OPTIMIZER_END, optimizer)

    def emit(self, kind: int, value: int = 0, flag: int = 0) -> None:
        """What the hooks and the GPU clock call to write a marker."""
        marker = layout.Marker(self.cpu.now_ns, kind, flag, TID, value)
        self.ring.waiting.append(marker)
        self.markers.append(marker)
        self.cpu.now_ns += 500

    def boundary(self, kind: int, value: int = 0) -> None:
        """As the hooks do it."""
        number = self.clock.event_number(kind, value)
        boundary = Boundary(kind, self.cpu.now_ns, self.stream.reached_ns(), bool(number))
        self.truth.boundaries.append(boundary)
        self.emit(kind, value, number)
        if number:
            self.cpu.work(self.interrupted_ns())
            self.clock.record_event(number)

    # -- and the monitor beside it

    def run(self, turn: Callable[[Training], None], seconds: float) -> list[Record]:
        """Repeat a turn of the loop for so long; returns the records of it."""
        end_ns = self.cpu.now_ns + int(seconds * SECOND)
        begun = len(self.records)
        while self.cpu.now_ns < end_ns:
            turn(self)
            self.look_if_due()
        self.look()
        return self.records[begun:]

    def run_unseen(self, turn: Callable[[Training], None], seconds: float) -> int:
        """As ``run``, and all of its markers are overwritten before they are read; returns how many."""
        end_ns = self.cpu.now_ns + int(seconds * SECOND)
        while self.cpu.now_ns < end_ns:
            turn(self)
        lost = len(self.ring.waiting)
        self.ring.waiting.clear()
        self.ring.dropping += lost
        return lost

    def end(self) -> list[Record]:
        """The training ends: the records of what is left."""
        begun = len(self.records)
        self.records += self.follower.last(self.cpu.now_ns)
        return self.records[begun:]

    def look_if_due(self) -> None:
        """The monitor reads the ring four times a second."""
        if self.cpu.now_ns >= self.look_ns:
            self.look()

    def look(self) -> None:
        """The monitor reads the ring."""
        self.look_ns = self.cpu.now_ns + SECOND // 4
        self.records += self.follower.windows(self.cpu.now_ns)
