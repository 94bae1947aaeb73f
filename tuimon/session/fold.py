"""Records into the tables of the session, each where it belongs."""

from __future__ import annotations

from collections import deque

from tuimon.records import (
    Cost,
    Exit,
    Frames,
    Gil,
    Gpu,
    GpuTime,
    Header,
    Loader,
    MachineMemory,
    Mark,
    Notice,
    Process,
    Record,
    Stacks,
    Steps,
    Threads,
    TorchMemory,
)
from tuimon.session.devices import DeviceTable
from tuimon.session.gpu_time import GpuTimeTable
from tuimon.session.loaders import LoaderTable
from tuimon.session.machine import MachineTable
from tuimon.session.samples.frames import FrameTable
from tuimon.session.samples.window import HotSpots
from tuimon.session.sampling import GilTable, SamplerTable
from tuimon.session.steps import StepStats
from tuimon.session.threads import ThreadTable


class Fold:
    """What a session rests on; ``add`` every record in order."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.exit: Exit | None = None
        self.cost: Cost | None = None
        self.now_s: float = 0.0  # ``t`` of the latest record
        self.start_s: float | None = None  # ``t`` of the first
        self.notices: dict[str, Notice] = {}  # per source, what it last said unless "ok"
        self.marks: deque[Mark] = deque(maxlen=100)
        self._steps: dict[int, StepStats] = {}
        self.frames = FrameTable()
        self._hotspots: dict[int, HotSpots] = {}
        self._sampler = SamplerTable()
        self._gil = GilTable()
        self._threads = ThreadTable()
        self._devices = DeviceTable()
        self._gpu_time = GpuTimeTable()
        self._loaders = LoaderTable()
        self.machine = MachineTable()

    def add(self, record: Record) -> None:
        """Fold one record into the picture."""
        self.now_s = max(self.now_s, record.t)
        if self.start_s is None:
            self.start_s = record.t
        match record:
            case Steps():
                self._add_steps(record)
            case Threads():
                self._threads.add_threads(record)
                self.machine.add_process(record)
            case Frames():
                self.frames.add(record.first, record.frames)
            case Stacks() | Gil():
                self._add_samples(record)
            case Loader():
                self._loaders.add(record)
            case Gpu() | MachineMemory() | GpuTime() | TorchMemory():
                self._add_machine(record)
            case Process():
                self._add_process(record)
            case Cost():
                self.cost = record
            case Notice():
                self._notice(record)
            case Mark():
                self.marks.append(record)
            case Header() | Exit():
                self._frame(record)

    def _frame(self, record: Header | Exit) -> None:
        """The first and the last record of a run."""
        if isinstance(record, Header):
            self.header = record
            self._threads.cpu_count = record.cpu_count
        else:
            self.exit = record

    def _add_steps(self, record: Steps) -> None:
        stats = self._steps.setdefault(record.pid, StepStats(record.pid))
        begun = stats.first_step_s is not None
        stats.add(record)
        if record.range_places:
            self._hotspots.setdefault(record.pid, HotSpots(record.pid, self.frames)).learn_ranges(record.range_places)
        if not begun and stats.first_step_s is not None:
            hotspots = self._hotspots.setdefault(record.pid, HotSpots(record.pid, self.frames))
            hotspots.steps_begin(record.t - record.window_s)

    def _add_samples(self, record: Stacks | Gil) -> None:
        if isinstance(record, Gil):
            self._gil.add(record)
            return
        self._sampler.add(record)
        self._hotspots.setdefault(record.pid, HotSpots(record.pid, self.frames)).add(record)

    def _add_machine(self, record: Gpu | MachineMemory | GpuTime | TorchMemory) -> None:
        """What speaks of the machine and its GPUs."""
        if isinstance(record, Gpu):
            self._devices.add(record)
        elif isinstance(record, MachineMemory):
            self.machine.add(record)
        else:
            stats = self._steps.get(record.pid)
            self._gpu_time.add(record, stats.first_step_s if stats else None)

    def _add_process(self, record: Process) -> None:
        before = self._threads.processes.get(record.pid)
        if before is not None and abs(before.start_unix_s - record.start_unix_s) > 1.0:  # the pid came back
            self._hotspots.pop(record.pid, None)
            self._sampler.forget(record.pid)
            self._gil.forget(record.pid)
        if record.ended:
            self.machine.forget(record.pid)
        self._threads.add_process(record)

    def _notice(self, record: Notice) -> None:
        if record.level == "ok":
            self.notices.pop(record.source, None)
        else:
            self.notices[record.source] = record
