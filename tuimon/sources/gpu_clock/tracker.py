"""A process's time on the GPU's clock: from the markers of its events to GpuTime and TorchMemory records."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tuimon.agent.ring import layout
from tuimon.records import GpuAccumulation, GpuExchange, GpuPhase, GpuTime, Record, TorchMemory
from tuimon.sources.gpu_clock.offset import Chain, LeadEstimate, lead_record
from tuimon.sources.gpu_clock.timed_steps import TimedStep, TimedStepFinder
from tuimon.sources.loop.step import Stretch

#: How often the offset of the clocks is estimated, in ns of the markers' time.
_ESTIMATE_NS = 1_000_000_000
_DEVICES = 64
#: Most leads at one kind of boundary between two records; further ones are left out.
_LEADS = 4096
#: Bytes, or a count: beyond is damage.
_MEMORY_LIMIT = 1 << 62
#: Windows that one record covers, so that the log stays small.
_WINDOWS = 2
#: An allocator whose figures have not changed is reported this often.
_REPEAT_NS = 10_000_000_000

#: The first steps of each second on the clock are kept: ranks are compared by steps that all of them have. 8 steps of
#: 35 bytes are 1 MB in an hour.
_A_SECOND = 8
#: With three passes, the second has neither the first one's new gradients nor the last one's exchange.
_PASSES = 3

#: The boundaries in the order of the loop.
BOUNDARIES = {
    layout.FETCH_END: "fetch end",
    layout.BACKWARD_BEGIN: "backward begin",
    layout.BACKWARD_END: "backward end",
    layout.OPTIMIZER_BEGIN: "optimizer begin",
    layout.OPTIMIZER_END: "optimizer end",
}


class Sums:
    """Results about one GPU since the last record."""

    def __init__(self) -> None:
        self.steps = 0
        self.error_us: float | None = None
        self.leads: dict[int, list[LeadEstimate]] = {}
        self._phases: dict[str, list[int]] = {}  # name: span, idle, upper bound of further idle time
        self._exchanges: list[GpuExchange] = []
        self._second = (0, 0)  # of the latest exchange, and how many it has
        self._accumulated = (0, 0, 0)  # of steps that accumulate gradients: steps, and times of two of their passes

    def add_step(self, step: TimedStep) -> None:
        """Count a step whose times are known."""
        self.steps += 1
        for name, *times_ns in step.stretches():
            sums = self._phases.setdefault(name, [0, 0, 0])
            for at, time_ns in enumerate(times_ns):
                sums[at] += time_ns
        passes = list(step.passes())
        exchange = step.exchange(passes[-1]) if passes else None
        if exchange is not None:
            second, count = self._second
            count = count + 1 if int(exchange.reached_s) == second else 1
            self._second = int(exchange.reached_s), count
            if count <= _A_SECOND:
                self._exchanges.append(exchange)
        if len(passes) >= _PASSES:
            steps, own_ns, last_ns = self._accumulated
            between = [each.own_ns for each in passes[1:-1]]
            self._accumulated = steps + 1, own_ns + sum(between) // len(between), last_ns + passes[-1].own_ns

    def record(self, t: float, pid: int, window_s: float, device: int, *, several_ranks: bool) -> GpuTime:
        """All of it; what only ranks can be compared by, only where there are several."""
        return GpuTime(
            t=t,
            pid=pid,
            window_s=window_s,
            device=device,
            steps=self.steps,
            total_ns=sum(sums[0] for name, sums in self._phases.items() if name != "eval"),
            phases=[GpuPhase(name, *sums) for name, sums in self._phases.items() if sums[0] > 0],
            leads=[lead_record(name, self.leads[kind]) for kind, name in BOUNDARIES.items() if kind in self.leads],
            lead_error_us=None if self.error_us is None else round(self.error_us, 1),
            bounded=True,
            exchanges=self._exchanges if several_ranks else [],
            accumulation=GpuAccumulation(*self._accumulated) if several_ranks and self._accumulated[0] else None,
        )


class GpuTracker:
    """Feed it the markers of one ring in order; it yields records once a window."""

    def __init__(self, pid: int, several_ranks: Callable[[], bool]) -> None:
        """``several_ranks``: whether the process is one of them, as far as it has reported."""
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
        self._memory_recorded: dict[int, dict[int, int]] = {}  # in the latest record of it
        self._memory_ns: dict[int, int] = {}

    def add_stretch(self, stretch: Stretch, tid: int) -> None:
        """A stretch of any thread; nothing is kept before the first that ends with an event."""
        if self._thread != tid:
            if not layout.has_event(stretch.flag) or stretch.kind not in BOUNDARIES:
                return
            self._thread = tid
            self.active = True
            self._steps.interrupt()
        self._steps.add_stretch(stretch)

    def feed_marker(self, time_ns: int, kind: int, flag: int, value: int) -> None:
        """Add markers of the GPU clock; others are passed over."""
        if kind == layout.GPU_TIME and self._chain is not None:
            if time_ns - self._estimated_ns > _ESTIMATE_NS:
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
            if value < _MEMORY_LIMIT and (device in self._memory or len(self._memory) < _DEVICES):
                self._memory.setdefault(device, {})[counter] = value

    def lose_markers(self) -> None:
        """Markers were overwritten before they were read: what follows joins on to nothing."""
        self._add_leads()
        self._chain = None
        self._steps.interrupt()

    def interrupt(self) -> None:
        """A profiler of ours is switched on or off: the step under way is not timed."""
        self._steps.interrupt()

    def skip_past(self) -> None:
        """Drop everything fed until now: it belongs to no window."""
        self._settle()
        self._sums.clear()

    def records(self, end_ns: int, window_s: float, *, ended: bool = False) -> Iterator[Record]:
        """The results by the end of a window; ``ended``: there will be no other."""
        self._settle()
        self._windows += 1
        self._window_s += window_s
        if self._windows >= _WINDOWS or ended:
            for device, sums in list(self._sums.items()):
                if sums.steps:
                    several = self._several_ranks()
                    yield sums.record(end_ns / 1e9, self._pid, self._window_s, device, several_ranks=several)
                    del self._sums[device]
            self._windows, self._window_s = 0, 0.0
        for device, figures in self._memory.items():
            if figures and (
                figures != self._memory_recorded.get(device) or end_ns - self._memory_ns[device] >= _REPEAT_NS
            ):
                yield self._torch_memory(end_ns, device, figures)
                self._memory_recorded[device], self._memory_ns[device] = figures, end_ns
            self._memory[device] = {}

    def _torch_memory(self, end_ns: int, device: int, figures: dict[int, int]) -> TorchMemory:
        return TorchMemory(
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

    def _add_leads(self) -> None:
        chain = self._chain
        if chain is None:
            return
        estimates = chain.take_leads()
        if not estimates:
            return
        sums = self._sums.setdefault(chain.device, Sums())
        sums.error_us = chain.error_us
        for kind, estimate in estimates:
            leads = sums.leads.setdefault(kind, [])
            if len(leads) < _LEADS:
                leads.append(estimate)

    def _settle(self) -> None:
        """Count steps and leads in their sums."""
        self._add_leads()
        for step in self._steps.take_steps():
            if step.chain is not None:
                self._sums.setdefault(step.chain.device, Sums()).add_step(step)
