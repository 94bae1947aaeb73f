"""A trace as lanes, and what a lane looks like in a row of terminal cells, at any zoom."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.trace.events import Events, Kind, Stretch, Stretches
from tuimon.trace.gpu import Launch
from tuimon.trace.phases import phases_of, whole
from tuimon.trace.reader import Trace

#: Most lanes of threads and of streams: the busiest.
_THREADS, _STREAMS = 3, 4
#: An item from this many cells on is drawn by itself.
_BLOCK_CELLS = 2.0


class Lane(Struct):
    """Items in the order of time that do not overlap: the outermost operators of a thread, the works of a stream."""

    name: str
    group: str  # "loop", "CPU", "GPU 0"
    begins: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    names: list[str] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)

    def add_item(self, begin_ns: int, end_ns: int, name: str, phase: str) -> None:
        """Add an item; what begins before the one before it has ended is cut."""
        begin_ns = max(begin_ns, self.ends[-1]) if self.ends else begin_ns
        if end_ns > begin_ns:
            self.begins.append(begin_ns)
            self.ends.append(end_ns)
            self.names.append(name)
            self.phases.append(phase)


class Block(NamedTuple):
    """An item wide enough for itself, or many in one cell: ``share`` of the cell is then busy."""

    x: int
    width: int
    name: str  # "" where a cell holds many
    phase: str
    share: float


class Timeline(Struct, frozen=True):
    """The lanes, and the time they span."""

    lanes: list[Lane]
    begin_ns: int
    end_ns: int
    steps: list[Stretch]


def timeline_of(trace: Trace) -> Timeline:
    """The lanes of a trace: its loop, its busiest threads, the streams of its GPUs."""
    span, phases = whole(trace), phases_of(trace)
    loop = [Lane("step", "loop"), Lane("phase", "loop")]
    for step in trace.steps.all:
        loop[0].add_item(step.begin_ns, step.end_ns, step.name, "")
    for phase in phases.all:
        loop[1].add_item(phase.begin_ns, phase.end_ns, phase.name, phase.name)
    events = trace.events
    end_ns = max(span.end_ns, max((e for i, e in enumerate(events.end_ns) if events.is_on_gpu(i)), default=0))
    lanes = [lane for lane in (*loop, *_threads(trace, phases), *_streams(trace, phases)) if lane.begins]
    return Timeline(lanes, span.begin_ns, end_ns, trace.steps.all)


def blocks(lane: Lane, begin_ns: float, end_ns: float, width: int) -> list[Block]:
    """The blocks of a lane between two moments, in ``width`` cells."""
    per_cell = (end_ns - begin_ns) / width
    busy: dict[int, float] = defaultdict(float)
    heaviest: dict[int, tuple[float, str]] = {}
    found: list[Block] = []
    taken = 0  # cells up to here belong to blocks
    first = bisect_right(lane.ends, begin_ns)
    for i in range(first, bisect_left(lane.begins, end_ns)):
        left = max(0.0, (lane.begins[i] - begin_ns) / per_cell)
        right = min(float(width), (lane.ends[i] - begin_ns) / per_cell)
        if right - left >= _BLOCK_CELLS:
            x = max(taken, round(left))
            taken = max(x + 1, round(right))
            found.append(Block(x, taken - x, lane.names[i], lane.phases[i], 1.0))
            continue
        for cell in range(int(left), min(int(right), width - 1) + 1):
            share = min(right, cell + 1) - max(left, cell)
            busy[cell] += share
            if share > heaviest.get(cell, (0.0, ""))[0]:
                heaviest[cell] = share, lane.phases[i]
    covered = {cell for block in found for cell in range(block.x, block.x + block.width)}
    found += [Block(x, 1, "", heaviest[x][1], min(1.0, busy[x])) for x in busy if x not in covered and x in heaviest]
    return sorted(found)


def _threads(trace: Trace, phases: Stretches) -> list[Lane]:
    """The outermost operators of the busiest threads."""
    events = trace.events
    lanes: dict[int, Lane] = {}
    for i in range(len(events)):
        if events.kind[i] in (Kind.OPERATOR, Kind.RUNTIME):
            lane = lanes.setdefault(events.track[i], Lane("", "CPU"))
            if not lane.ends or events.begin_ns[i] >= lane.ends[-1]:
                lane.add_item(
                    events.begin_ns[i], events.end_ns[i], events.name_of(i), phases.name_at(events.begin_ns[i])
                )
    for track, lane in lanes.items():
        lane.name = "backward" if _is_mostly(lane.phases, "backward") else trace.tracks[track].name
    busiest = sorted(lanes.values(), key=lambda lane: sum(lane.begins) - sum(lane.ends))[:_THREADS]
    main = max(busiest, key=lambda lane: len(set(lane.phases)), default=None)
    for lane in busiest:
        if lane is main:
            lane.name = "main"
    return sorted(busiest, key=lambda lane: lane is not main)


def _streams(trace: Trace, phases: Stretches) -> list[Lane]:
    """The works of the busiest streams, in the phases in which they were launched."""
    events = trace.events
    called = _called(events)
    lanes: dict[int, Lane] = {}
    for i in range(len(events)):
        if events.is_on_gpu(i):
            track = trace.tracks[events.track[i]]
            lane = lanes.setdefault(events.track[i], Lane(track.name, f"GPU {track.device or 0}"))
            launch = called.get(events.correlation[i])
            moment_ns = launch.begin_ns if launch is not None else events.begin_ns[i]
            lane.add_item(events.begin_ns[i], events.end_ns[i], events.name_of(i), phases.name_at(moment_ns))
    busiest = sorted(lanes.values(), key=lambda lane: sum(lane.begins) - sum(lane.ends))[:_STREAMS]
    return sorted(busiest, key=lambda lane: (lane.group, -len(lane.begins)))


def _called(events: Events) -> dict[int, Launch]:
    return {
        events.correlation[i]: Launch(i, events.begin_ns[i], events.end_ns[i])
        for i in range(len(events))
        if events.kind[i] == Kind.RUNTIME and events.correlation[i]
    }


def _is_mostly(names: Sequence[str], name: str) -> bool:
    return sum(each == name for each in names) * 2 > len(names)
