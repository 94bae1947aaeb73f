"""From the markers of CUDA events to GpuTime and TorchMemory records of a process.

The GPU's times attach to the stretches of the loop. A timed step goes from the first batch or backward after an update
to the next such boundary. Only steps with a time for each of their boundaries count: in the others a phase would be
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.agent.ring import layout
from tuimon.bounds import MANY_HELD, Latest, has_room
from tuimon.records import BETWEEN, GPU_BOUNDARIES, GpuAccumulation, GpuExchange, GpuPhase, GpuTime, Record, TorchMemory
from tuimon.sources.gpu_clock.offset import Chain, TimedBoundary, lead_record
from tuimon.sources.loop.step import MarkedStretch

_KINDS = layout.FETCH_END, layout.BACKWARD_BEGIN, layout.BACKWARD_END, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END
#: The boundaries that may have an event.
EVENT_BOUNDARIES = dict(zip(_KINDS, GPU_BOUNDARIES, strict=True))
_BEGINS_STEP = frozenset((layout.FETCH_END, layout.BACKWARD_BEGIN))


class Pass(NamedTuple):
    """A backward pass: its begin and end, and the update that uses its gradients."""

    begin: TimedBoundary
    end: TimedBoundary
    update: TimedBoundary

    @property
    def own_ns(self) -> int:
        """From its beginning to its end."""
        return _span_ns(self.begin, self.end)


class TimedStep(Struct):
    """The boundaries of a step, the first of the next included."""

    boundaries: list[TimedBoundary] = field(default_factory=list)

    @property
    def chain(self) -> Chain | None:
        """The chain with the times of all its boundaries; None if there is none yet."""
        chain = self.boundaries[0].chain
        return chain if all(boundary.chain is chain for boundary in self.boundaries) else None

    def phases(self) -> Iterator[GpuPhase]:
        """The parts of the GPU's time, one after another."""
        for (before, after), is_evaluation in zip(pairwise(self.boundaries), self._evaluations(), strict=True):
            yield from _between(before, after, is_evaluation)

    def passes(self) -> Iterator[Pass]:
        boundaries = self.boundaries
        for at, (begin, end) in enumerate(pairwise(boundaries)):
            if (begin.kind, end.kind) == (layout.BACKWARD_BEGIN, layout.BACKWARD_END):
                after = boundaries[at + 2] if at + 2 < len(boundaries) else end
                yield Pass(begin, end, after if after.kind == layout.OPTIMIZER_BEGIN else end)

    def exchange(self, last: Pass) -> GpuExchange | None:
        """The exchange of gradients as the step's last pass shows it; None while the offset of the clocks is unknown.

        Without a forward pass if the step begins with backward: the pass then belongs to the step before.
        """
        if not last.update.is_estimated:
            return None
        forward_ns = None
        if self.boundaries[0].kind != layout.BACKWARD_BEGIN:
            pairs = pairwise(self.boundaries[:-1])
            forward_ns = sum(_span_ns(*pair) for pair in pairs if pair[1].kind == layout.BACKWARD_BEGIN)
        reached_s = round(last.update.reached_ns / 1e9, 6)
        return GpuExchange(reached_s, forward_ns, last.own_ns, _span_ns(last.end, last.update))

    def _evaluations(self) -> list[bool]:
        """For each pair of neighbouring boundaries, True if a batch is evaluated between them.

        An evaluation lasts from fetch to fetch. It may need gradients, such as forces: then boundaries of backward lie
        between the two fetches.
        """
        found = [False] * (len(self.boundaries) - 1)
        fetched = None  # the latest fetch without an update since
        for at, boundary in enumerate(self.boundaries):
            if boundary.kind == layout.FETCH_END:
                if boundary.evaluated and fetched is not None:
                    found[fetched:at] = [True] * (at - fetched)
                fetched = at
            elif boundary.kind in (layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END):
                fetched = None
        return found


class TimedStepFinder:
    """Finds the timed steps of a thread, from its stretches and the times of their events, given in order."""

    def __init__(self) -> None:
        self.waiting = Latest[int, TimedBoundary](MANY_HELD)  # by number of its event, which is used again
        self._open: TimedStep | None = None
        self._closed: list[TimedStep] = []
        self._evaluated = False  # the batch before was proved to be evaluated, since the last boundary

    def add_stretch(self, stretch: MarkedStretch) -> None:
        """Add the next stretch of the thread; the boundary that ends it may have an event."""
        self._evaluated |= stretch.evaluated
        kind, flag = stretch.kind, stretch.flag
        if kind not in EVENT_BOUNDARIES or (kind == layout.FETCH_END and flag in layout.NO_BATCH):
            return
        if layout.has_event(flag):
            self._add_boundary(TimedBoundary(stretch, self._evaluated), flag)
            self._evaluated = False
        elif not stretch.nested:
            self.interrupt()

    def interrupt(self) -> None:
        """Break the sequence: the next marker does not follow the last one."""
        self._open = None

    def take_steps(self) -> list[TimedStep]:
        """Return and clear the steps whose times are now known."""
        last_known = max((at for at, step in enumerate(self._closed) if step.chain is not None), default=-1)
        # events of 64 steps may still come: a GPU is at most a thousand launches behind
        count = max(last_known + 1, len(self._closed) - 64, 0)
        passed, self._closed = self._closed[:count], self._closed[count:]
        # events are reported in order: the missing ones of these steps will not come
        return [step for step in passed if step.chain is not None]

    def _add_boundary(self, boundary: TimedBoundary, number: int) -> None:
        self.waiting[number] = boundary
        step, begins = self._open, boundary.kind in _BEGINS_STEP
        if step is not None:
            step.boundaries.append(boundary)
            if begins and boundary.stretch.cut != step.boundaries[0].stretch.cut:
                self._closed.append(step)
                step = None
            elif len(step.boundaries) > MANY_HELD:  # it holds an evaluation
                self.interrupt()
                return
        if step is None:
            self._open = TimedStep([boundary]) if begins else None


def _between(before: TimedBoundary, after: TimedBoundary, is_evaluation: bool) -> Iterator[GpuPhase]:
    """The work of the GPU from one boundary to the next.

    During a fetch nothing is launched. A GPU that has nothing to do at its end has waited: for the fetch, and if it
    waited longer, for the CPU's work before it. Launches between the update and the fetch (averaged weights) have no
    boundary of their own: the part of their work that runs during the fetch is taken for waiting.
    """
    span_ns, label = _span_ns(before, after), after.stretch.label
    if is_evaluation:
        name = "eval"
    elif after.kind == layout.FETCH_END:
        name = "other"
        opened = after.stretch.opened
        if after.stream_idle and opened is not None:
            wait_ns = min(span_ns, after.time_ns - opened.end_ns)
            yield GpuPhase("data", wait_ns, wait_ns, 0)
            yield GpuPhase("other", span_ns - wait_ns, 0, span_ns - wait_ns)
            return
    else:
        name = "forward" if label == BETWEEN else label
    yield GpuPhase(name, span_ns, 0, _idle_at_most_ns(before, after))


def _idle_at_most_ns(before: TimedBoundary, after: TimedBoundary) -> int:
    """The longest time for which the GPU can have had nothing to do between two boundaries.

    Once the CPU reaches the second one, all work before it is launched: from then on the GPU is busy until it reaches
    it, too. The rest is the time from the GPU's arrival at the first boundary to the CPU's arrival at the second. If
    the GPU reaches the first 3 ms after the CPU, and the CPU the second 10 ms after the first, that is 7 ms.
    """
    span_ns = _span_ns(before, after)
    return span_ns if after.stream_idle else max(0, min(span_ns, round(after.time_ns - before.earliest_ns)))


def _span_ns(begin: TimedBoundary, end: TimedBoundary) -> int:
    return max(0, end.gpu_ns - begin.gpu_ns)


#: Largest number of bytes, or count: beyond it is damage.
_MEMORY_LIMIT = 1 << 62

#: The first steps of each second on the clock are kept: ranks are compared by steps that all of them have. 8 steps of
#: 35 bytes are 1 MB in an hour.
_A_SECOND = 8


class Sums:
    """Sums over the timed steps of one GPU since the last record."""

    def __init__(self) -> None:
        self.steps = 0
        self.error_us: float | None = None
        self.leads: dict[int, list[TimedBoundary]] = {}  # by kind
        self._phases: dict[str, list[int]] = {}  # name: span, idle, upper bound of further idle time
        self._exchanges: list[GpuExchange] = []
        self._second = (0, 0)  # of the latest exchange, and how many it has
        self._accumulated = (0, 0, 0)  # of steps that accumulate gradients: steps, and times of two of their passes

    def add_step(self, step: TimedStep) -> None:
        """Count a step whose times are known."""
        self.steps += 1
        for phase in step.phases():
            sums = self._phases.setdefault(phase.name, [0, 0, 0])
            sums[0] += phase.span_ns
            sums[1] += phase.idle_ns
            sums[2] += phase.maybe_idle_ns
        passes = list(step.passes())
        exchange = step.exchange(passes[-1]) if passes else None
        if exchange is not None:
            second, count = self._second
            count = count + 1 if int(exchange.reached_s) == second else 1
            self._second = int(exchange.reached_s), count
            if count <= _A_SECOND:
                self._exchanges.append(exchange)
        if len(passes) >= 3:  # a pass between the first, which has new gradients, and the last, which has the exchange
            steps, own_ns, last_ns = self._accumulated
            between = [each.own_ns for each in passes[1:-1]]
            self._accumulated = steps + 1, own_ns + sum(between) // len(between), last_ns + passes[-1].own_ns

    def record(self, t: float, pid: int, window_s: float, device: int, *, several_ranks: bool) -> GpuTime:
        """The record of these sums; figures that compare ranks only if there are several."""
        return GpuTime(
            t=t,
            pid=pid,
            window_s=window_s,
            device=device,
            steps=self.steps,
            total_ns=sum(sums[0] for name, sums in self._phases.items() if name != "eval"),
            phases=[GpuPhase(name, *sums) for name, sums in self._phases.items() if sums[0] > 0],
            leads=[
                lead_record(each, self.leads[kind]) for kind, each in EVENT_BOUNDARIES.items() if kind in self.leads
            ],
            lead_error_us=None if self.error_us is None else round(self.error_us, 1),
            bounded=True,
            exchanges=self._exchanges if several_ranks else [],
            accumulation=GpuAccumulation(*self._accumulated) if several_ranks and self._accumulated[0] else None,
        )


class GpuTracker:
    """Makes the GpuTime and TorchMemory records of a process from the markers of its ring, given in order."""

    def __init__(self, pid: int, several_ranks: Callable[[], bool]) -> None:
        """``several_ranks``: whether the process is one of several ranks, as far as it has reported."""
        self._several_ranks = several_ranks
        self.active = False  # a boundary with an event was seen
        self._pid = pid
        self._thread: int | None = None  # whose boundaries have events
        self._steps = TimedStepFinder()
        self._chain: Chain | None = None
        self._estimated_ns = 0
        self._sums: dict[int, Sums] = {}  # by device
        self._windows = 0  # since the last records
        self._window_s = 0.0
        self._memory: dict[int, dict[int, int]] = {}  # by device: what was reported in this window
        self._recorded: dict[int, tuple[dict[int, int], int]] = {}  # the latest record of it, and its time

    def add_stretch(self, stretch: MarkedStretch, tid: int) -> None:
        """A stretch of any thread; nothing is kept before the first that ends with an event."""
        if self._thread != tid:
            if not layout.has_event(stretch.flag) or stretch.kind not in EVENT_BOUNDARIES:
                return
            self._thread = tid
            self.active = True
            self._steps.interrupt()
        self._steps.add_stretch(stretch)

    def feed_marker(self, time_ns: int, kind: int, flag: int, value: int) -> None:
        """Add a marker; only those of the GPU clock matter."""
        if kind == layout.GPU_TIME and self._chain is not None:
            if time_ns - self._estimated_ns > 1_000_000_000:
                self._add_leads()
                self._estimated_ns = time_ns
            boundary = self._steps.waiting.pop(flag, None)
            if boundary is not None:
                self._chain.add_event(boundary, time_ns, layout.unpack_gpu_time(value))
        elif kind == layout.GPU_ANCHOR:
            device, elapsed_ns = layout.unpack_gpu_anchor(value)
            if self._chain is not None and elapsed_ns is not None and self._chain.device == device:
                self._chain.move_anchor(elapsed_ns)
            else:
                self._add_leads()
                self._chain = Chain(device)
        elif kind == layout.TORCH_MEMORY:
            device, counter = flag >> 4, flag & 0xF
            if value < _MEMORY_LIMIT and has_room(self._memory, device):
                self._memory.setdefault(device, {})[counter] = value

    def lose_markers(self) -> None:
        """Break all sequences: markers were overwritten before they were read."""
        self._add_leads()
        self._chain = None
        self._steps.interrupt()

    def interrupt(self) -> None:
        """Leave out the open step: tuimon has begun or ended a trace or a memory history."""
        self._steps.interrupt()

    def skip_past(self) -> None:
        """Drop all results until now: they belong to no window."""
        self._settle()
        self._sums.clear()

    def records(self, end_ns: int, window_s: float, *, ended: bool = False) -> Iterator[Record]:
        """The records of a window that ends at ``end_ns``; ``ended``: it is the last one."""
        self._settle()
        self._windows += 1
        self._window_s += window_s
        if self._windows >= 2 or ended:  # so that the log stays small
            for device, sums in list(self._sums.items()):
                if sums.steps:
                    several = self._several_ranks()
                    yield sums.record(end_ns / 1e9, self._pid, self._window_s, device, several_ranks=several)
                    del self._sums[device]
            self._windows, self._window_s = 0, 0.0
        for device, figures in self._memory.items():
            recorded, recorded_ns = self._recorded.get(device, ({}, 0))
            if figures and (figures != recorded or end_ns - recorded_ns >= 10e9):
                yield TorchMemory(
                    t=end_ns / 1e9,
                    pid=self._pid,
                    device=device,
                    allocated_bytes=figures.get(layout.MEMORY_ALLOCATED),
                    peak_bytes=figures.get(layout.MEMORY_PEAK),
                    reserved_bytes=figures.get(layout.MEMORY_RESERVED),
                    alloc_retries=figures.get(layout.MEMORY_RETRIES),
                    ooms=figures.get(layout.MEMORY_OOMS),
                    device_frees=figures.get(layout.MEMORY_FREES),
                    pinned_bytes=figures.get(layout.MEMORY_PINNED),
                )
                self._recorded[device] = figures, end_ns
            self._memory[device] = {}

    def _add_leads(self) -> None:
        chain = self._chain
        if chain is None:
            return
        boundaries = chain.take_estimated()
        if not boundaries:
            return
        sums = self._sums.setdefault(chain.device, Sums())
        sums.error_us = chain.error_us
        for boundary in boundaries:
            leads = sums.leads.setdefault(boundary.kind, [])
            if len(leads) < MANY_HELD:
                leads.append(boundary)

    def _settle(self) -> None:
        """Count steps and leads in their sums."""
        self._add_leads()
        for step in self._steps.take_steps():
            if step.chain is not None:
                self._sums.setdefault(step.chain.device, Sums()).add_step(step)
