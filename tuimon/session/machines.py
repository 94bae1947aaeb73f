"""The machines of a run: facts about each, its memory, and the use of its cores and GPUs."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise, repeat, starmap
from typing import Any, NamedTuple

from msgspec import Struct

from tuimon.bounds import MANY_HELD, has_room
from tuimon.node_ids import node_of
from tuimon.proc.numa import core_numbers
from tuimon.records import Gpu, MachineMemory, Node
from tuimon.session.gpus import DeviceHistory
from tuimon.session.series import FEW_ROWS, LATEST, Series, Span, latest, row_of


class Growth(NamedTuple):
    """How much of a resource is in use, in bytes or by number, and how fast that has grown."""

    held: float
    risen: float
    per_s: float
    seen_s: float  # time for which the growth was seen

    @property
    def is_sure(self) -> bool:
        """True if the growth has been seen for long enough to be expected to go on."""
        return self.seen_s >= _SURE_S


#: The time that a growth rate covers, in seconds.
GROWTH_S = 120.0
#: Least seconds between two readings that are used; readings come every second, or a little early.
_EVERY_S = 0.75
#: A growth goes on if there are at least this many readings, and their later half has this part of it: our choice.
_GOING_ON_READINGS, _GOING_ON_PART = 5, 0.25
#: Least readings for a growth to be steady (8 s of them), and the seconds after which fewer are enough.
_STEADY_READINGS, _SURE_S = 9, 16.0
#: The readings are divided into quarters. In a steady growth the rise per step from one quarter to the next is always
#: at least this part of the largest such rise, and the last one at least this part of the overall rate: our choice. A
#: smaller part means a cache that levels off, or a jump. Before ``_SURE_S`` a cache has levelled off less, so more is
#: required.
_STEADY_PART = 0.6


class Reading(NamedTuple):
    """The amount held at a moment."""

    t: float
    held: float
    steps: float = 0.0  # made until then; 0 if they are not known


def readings_of(times_s: Iterable[float], held: Iterable[float], steps: Iterable[float] = repeat(0.0)) -> list[Reading]:
    """One reading in about a second, of those that are numbers."""
    found: list[Reading] = []
    for reading in map(Reading, times_s, held, steps):
        if not math.isnan(reading.held) and (not found or reading.t - found[-1].t >= _EVERY_S):
            found.append(reading)
    return found


def growth_going_on(readings: Sequence[Reading], since_s: float = -math.inf) -> Growth | None:
    """The growth since a moment, even if it has slowed down; None if it was a jump, is over, or goes up and down."""
    readings = [reading for reading in readings if reading.t >= since_s]
    held, half = [reading.held for reading in readings], len(readings) // 2
    if len(held) < _GOING_ON_READINGS or max(held[:half]) > min(held[half:]) or held[-1] <= held[0]:
        return None
    risen, seen_s = held[-1] - held[0], readings[-1].t - readings[0].t
    return Growth(held[-1], risen, risen / seen_s, seen_s) if held[-1] - held[half] >= _GOING_ON_PART * risen else None


def steady_growth(readings: Sequence[Reading], since_s: float = -math.inf) -> Growth | None:
    """The growth since a moment; None unless there has been one for 8 s that does not level off.

    The quarters of readings of 1 2 3 ... 12 have medians of 2 5 8 11, which is steady; 1 4 6 7 7.5 levels off, and 1 1
    1 9 9 9 is a jump. The rise is taken per step, because a leak slows down with the steps.
    """
    readings = [reading for reading in readings if reading.t >= since_s]
    number, growth = len(readings), growth_going_on(readings)
    if growth is None or (number < _STEADY_READINGS and not growth.is_sure):
        return None
    quarters = [readings[n * number // 4 : (n + 1) * number // 4] for n in range(4)]
    medians = [sorted(reading.held for reading in quarter)[len(quarter) // 2] for quarter in quarters]
    middles = [quarter[len(quarter) // 2]._replace(held=held) for quarter, held in zip(quarters, medians, strict=True)]
    goes_on = all(later.steps > one.steps for one, later in pairwise(middles))

    def rate(one: Reading, later: Reading) -> float:
        return (later.held - one.held) / ((later.steps - one.steps if goes_on else later.t - one.t) or math.inf)

    rates, part = list(starmap(rate, pairwise(middles))), _STEADY_PART ** min(1.0, growth.seen_s / _SURE_S)
    last = quarters[-1] if len(quarters[-1]) > 1 else readings[-2:]
    is_steady = min(rates) > 0 and min(rates) >= part * max(rates)
    return growth if is_steady and rate(last[0], last[-1]) >= part * rate(readings[0], readings[-1]) else None


class Placement(NamedTuple):
    """The NUMA nodes of a training process."""

    allowed: tuple[int, ...]  # whose cores it may use
    ran_on: tuple[int, ...]  # the node at each reading, oldest first


class CoresTaken(Struct, frozen=True, gc=False):
    """Cores that were not available to the run for some time."""

    others: float  # used by programs that are neither the run's nor tuimon
    idle: float | None  # used by nobody; None if the number of cores is unknown
    stolen: float = 0.0  # given to others by the host of this virtual machine
    held: float = 0.0  # kept by the CPU limit of a control group from threads of the run that were ready to run
    limit: float | None = None  # that limit, in cores


class _Used(NamedTuple):
    """Core-seconds of windows of the machine; a row of a ``Series``."""

    begin_s: float
    end_s: float
    seconds: float
    busy: float
    own: float
    stolen: float
    held: float


#: How much of a resource was used at a moment.
_Held = row_of("used")


class MachineTable:
    """One machine: its resources with limits, its GPUs, and the use of its cores by all programs and by the run.

    Windows of the machine are longer than those of processes and begin at other moments, so the run's use is subtracted
    over the same time. Example: of 1.6 cores that were busy from 0 s to 5 s, 0.6 belong to a run that used 1.5 cores
    from 3 s to 5 s.
    """

    def __init__(self, own_core_s: Callable[[float, float], tuple[float, float]]) -> None:
        """``own_core_s``: core-seconds that the run used in a stretch of time, and until when these are known."""
        self._own_core_s = own_core_s
        self.cores: int | None = None  # that the run may use
        self.all_cores: int | None = None  # that tuimon may use
        self.devices: dict[str, DeviceHistory] = {}  # by UUID
        self.latest: MachineMemory | None = None
        self.most_held: tuple[int, int] | None = None  # a process, and the most bytes that any has held
        self._resources: dict[str, Series[Any]] = {}  # by the name of the resource
        self._ran_on: defaultdict[int, deque[int]] = defaultdict(lambda: deque(maxlen=60))  # readings of five minutes
        self._measured: MachineMemory | None = None  # the latest window with the cores that are busy
        self._series = Series(_Used, FEW_ROWS)  # without that window, as long as windows of processes may fall into it

    def add_gpu(self, record: Gpu) -> None:
        if record.uuid not in self.devices and has_room(self.devices, record.uuid):
            self.devices[record.uuid] = DeviceHistory(record)
        if record.uuid in self.devices:
            self.devices[record.uuid].add_record(record)

    def add_held(self, pid: int, held_bytes: int) -> None:
        if held_bytes > (self.most_held[1] if self.most_held is not None else 0):
            self.most_held = pid, held_bytes

    def add_memory(self, record: MachineMemory) -> None:
        """Fold a window of the machine, where processes run, and which cores the run may use, if others than tuimon."""
        self.latest = record
        self.cores = (len(core_numbers(record.run_cores)) if record.run_cores is not None else 0) or self.all_cores
        for placed in record.placed:
            self._ran_on[placed.pid].append(placed.node)
        for each in record.resources:
            if has_room(self._resources, each.name):
                series = self._resources.setdefault(each.name, Series(_Held, FEW_ROWS, {"used": latest}))
                series.append(_Held(record.t, record.t, each.used))
        if record.busy_cores is None:
            return
        if (before := self._latest_used()) is not None:
            self._series.append(before)
        self._measured = record

    def used(self, name: str, span: Span) -> list[Reading]:
        """How much of a resource was used in a span, at even distances."""
        rows = self._resources[name].even_rows(span) if name in self._resources else []
        return [Reading(row.end_s, row.used) for row in rows]

    def begin_steps(self, t: float) -> None:
        """Note that a training begins to make steps: a span may begin here."""
        self._series.keep_apart(t)

    def forget(self, pid: int) -> None:
        """Drop a process that has ended."""
        self._ran_on.pop(pid, None)

    def placement(self, pid: int) -> Placement | None:
        """The NUMA node that a training process runs on; None on a machine with one node."""
        placed = next((each for each in self.latest.placed if each.pid == pid), None) if self.latest else None
        return Placement(tuple(placed.nodes), tuple(self._ran_on[pid])) if placed is not None else None

    def cores_taken(self, span: Span, monitor: float) -> CoresTaken | None:
        """Cores taken in a span; None until a window in it was measured.

        ``monitor``: cores that tuimon uses.
        """
        latest = self._latest_used()
        sums = self._series.over(span) if span != LATEST else None
        if latest is not None and span.begin_s <= (latest.begin_s + latest.end_s) / 2 <= span.end_s:
            sums = self._series.joined((sums, latest)) if sums is not None else latest
        if sums is None or not sums.seconds > 0:
            return None
        busy, stolen = sums.busy / sums.seconds, sums.stolen / sums.seconds
        return CoresTaken(
            others=max(0.0, busy - sums.own / sums.seconds - monitor),
            idle=max(0.0, self.cores - busy - stolen) if self.cores is not None else None,
            stolen=stolen,
            held=sums.held / sums.seconds,
            limit=self._measured.cpu_limit_cores if self._measured is not None else None,
        )

    def _latest_used(self) -> _Used | None:
        """The latest window in which the use by the run is known: up to which its processes have windows."""
        record = self._measured
        if record is None:
            return None
        begin_s = record.t - record.window_s
        own_s, until_s = self._own_core_s(begin_s, record.t)
        if until_s <= begin_s:
            return None
        cores = (record.busy_cores, own_s / (until_s - begin_s), record.stolen_cores, record.held_cores)
        used = ((each or 0.0) * record.window_s for each in cores)
        return _Used(begin_s, record.t, record.window_s, *used)


class MachineTables:
    """The machines of a run, by number of the node; a run on one machine has no Node records."""

    def __init__(self, own_core_s: Callable[[int, float, float], tuple[float, float]]) -> None:
        """``own_core_s``: of a node, see ``MachineTable``."""
        self._own_core_s = own_core_s
        self.known: dict[int, Node] = {}
        self._machines: dict[int, MachineTable] = {}

    def add_node(self, record: Node) -> None:
        if record.number in self.known or len(self.known) < MANY_HELD:
            self.known[record.number] = record
            self.add_cores(record.number, record.cpu_count)

    def add_cores(self, node: int, number: int) -> None:
        """Fold how many cores a node has, by its header."""
        machine = self.of(node)
        machine.cores = machine.all_cores = number

    def of(self, node: int) -> MachineTable:
        machine = self._machines.get(node)
        if machine is None:
            machine = MachineTable(partial(self._own_core_s, node))
            if len(self._machines) < MANY_HELD:
                self._machines[node] = machine
        return machine

    def of_process(self, pid: int) -> MachineTable:
        return self.of(node_of(pid))
