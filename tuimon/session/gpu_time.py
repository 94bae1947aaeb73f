"""Time on the GPU's clock and torch's memory of one process, folded from GpuTime and TorchMemory records."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from tuimon.records import GpuAccumulation, GpuExchange, GpuTime, Lead, TorchMemory
from tuimon.session.machines import MemoryReadings
from tuimon.session.rows import GpuTimeRow, LeadRow, TorchMemoryRow
from tuimon.session.series import WINDOW_S, Series, Span, weighted_median

#: Most that are kept of a run.
_LIMIT = 512
#: Most that are recent: to join those of 64 ranks takes 2 ms, each time that rules judge.
_RECENT = 64


class SpreadExchanges:
    """Exchanges of every second, later every other, then every fourth: by the clock, the same in all ranks."""

    def __init__(self) -> None:
        self.exchanges: list[GpuExchange] = []
        self._stride = 1

    def add_window(self, record: GpuTime) -> None:
        """Add a window's."""
        self.exchanges += self._kept(record.exchanges)
        if len(self.exchanges) > _LIMIT:
            self._stride *= 2
            self.exchanges = self._kept(self.exchanges)[:_LIMIT]

    def _kept(self, exchanges: Iterable[GpuExchange]) -> list[GpuExchange]:
        return [found for found in exchanges if int(found.reached_s) % self._stride == 0]


#: Most devices of a process that are remembered.
_DEVICES = 64
#: Windows of each length that a series holds; one comes every two seconds, of one GPU or in turn of several.
_ROWS = 32
#: Recent is what the last 30 s hold, or the time of so many steps where these take longer, up to twenty minutes.
_STEPS = 8
_LONGEST_S = 1200.0
#: Retries of the allocator are counted from this long after the first step on: before, its caches fill up.
_SETTLED_S = 10.0
#: The phases of a step, as columns.
_PHASES = ("data", "forward", "backward", "optimizer", "other")
#: The order in which boundaries are listed.
_ORDER = ("fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end")


class GpuShare(Struct, frozen=True, gc=False):
    """A phase's shares of the GPU's time in steps."""

    span: float
    idle: float
    maybe_idle: float


class GpuShares(NamedTuple):
    """Steps that were timed on one device in a stretch of a run; a row of a ``Series``. Sums in ns."""

    begin_s: float
    end_s: float
    steps: float
    total_ns: float
    unbounded: float  # windows of old logs: see ``records.GpuTime.bounded``
    lead_error_us: float  # the latest; not a number: unknown
    accumulated_steps: float  # the fields of ``GpuAccumulation``
    own_ns: float
    last_ns: float
    data_span: float
    forward_span: float
    backward_span: float
    optimizer_span: float
    other_span: float
    data_idle: float
    forward_idle: float
    backward_idle: float
    optimizer_idle: float
    other_idle: float
    data_maybe: float
    forward_maybe: float
    backward_maybe: float
    optimizer_maybe: float
    other_maybe: float

    def of(self, name: str) -> GpuShare | None:
        """A phase's shares; None when nothing was timed, and for evaluation, which is beside the steps."""
        if not self.total_ns or name == "eval":
            return None
        if name not in _PHASES:
            return GpuShare(0.0, 0.0, 0.0)
        return GpuShare(*(ns / self.total_ns for ns in self[_FIRST_PHASE + _PHASES.index(name) :: len(_PHASES)]))

    @property
    def idle_ratio(self) -> float:
        """Share of the GPU's time in which it certainly had nothing to do."""
        return sum(self[_FIRST_IDLE:_FIRST_MAYBE]) / self.total_ns if self.total_ns else 0.0

    @property
    def maybe_idle_ratio(self) -> float:
        """Share of the GPU's time that may have been idle as well."""
        return sum(self[_FIRST_MAYBE:]) / self.total_ns if self.total_ns else 0.0

    @property
    def accumulation(self) -> GpuAccumulation | None:
        """The steps whose gradients add up; None without any."""
        steps, *sums_ns = map(int, (self.accumulated_steps, self.own_ns, self.last_ns))
        return GpuAccumulation(steps, *sums_ns) if steps else None


_FIRST_PHASE, _FIRST_IDLE, _FIRST_MAYBE = map(GpuShares._fields.index, ("data_span", "data_idle", "data_maybe"))


def shares_of(record: GpuTime) -> GpuShares:
    """A window as a row."""
    phases = {phase.name: phase for phase in record.phases}
    known = [phases.get(name) for name in _PHASES]
    accumulated = record.accumulation
    return GpuShares(
        record.t - record.window_s,
        record.t,
        record.steps,
        record.total_ns,
        not record.bounded,
        math.nan if record.lead_error_us is None else record.lead_error_us,
        *((accumulated.steps, accumulated.own_ns, accumulated.last_ns) if accumulated is not None else (0, 0, 0)),
        *(phase.span_ns if phase is not None else 0 for phase in known),
        *(phase.idle_ns if phase is not None else 0 for phase in known),
        *(phase.maybe_idle_ns if phase is not None else 0 for phase in known),
    )


def _latest(values: Sequence[float]) -> float:
    return next((value for value in reversed(values) if not math.isnan(value)), math.nan)


def gpu_series() -> Series[GpuShares]:
    """An empty series of the steps that are timed on one device."""
    return Series(GpuShares, _ROWS, {"lead_error_us": _latest})


class _Leads(NamedTuple):
    """The leads at one kind of boundary in a stretch of a run; a row of a ``Series``. Sums over boundaries, in us."""

    begin_s: float
    end_s: float
    seen: float
    idle: float
    known: float  # boundaries at which the clocks are known well enough
    median_us: float
    with_mean: float
    mean_us: float
    min_us: float = math.inf
    max_us: float = -math.inf
    at_least_us: float = -math.inf  # a bound at each of them; minus infinity: not known at some


def _leads_of(record: GpuTime, lead: Lead) -> _Leads:
    known = lead.count if lead.median_us is not None else 0
    with_mean = lead.count if lead.mean_us is not None else 0
    return _Leads(
        record.t - record.window_s,
        record.t,
        lead.count,
        lead.idle_count,
        known,
        known * (lead.median_us or 0.0),
        with_mean,
        with_mean * (lead.mean_us or 0.0),
        math.inf if not known or lead.min_us is None else lead.min_us,
        -math.inf if not known or lead.max_us is None else lead.max_us,
        -math.inf if lead.at_least_us is None else lead.at_least_us,
    )


class _Device:
    """The windows of one GPU of the process."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.times = gpu_series()
        self.exchanges = SpreadExchanges()
        self._latest_exchanges: deque[GpuExchange] = deque(maxlen=_RECENT)
        self._leads: dict[str, Series[_Leads]] = {}

    def add_window(self, record: GpuTime) -> None:
        """Fold a window."""
        self.times.append(shares_of(record))
        self.exchanges.add_window(record)
        self._latest_exchanges.extend(record.exchanges)
        for lead in record.leads:
            if lead.boundary in _ORDER:
                leads = self._leads.get(lead.boundary)
                if leads is None:
                    how = {"min_us": min, "max_us": max, "at_least_us": min}
                    leads = self._leads[lead.boundary] = Series(_Leads, _ROWS, how)
                leads.append(_leads_of(record, lead))

    def row(self, span: Span, *, is_recent: bool) -> GpuTimeRow | None:
        """Its steps in a span; None where none were timed."""
        sums = self.times.over(span)
        if sums is None:
            return None
        latest = (found for found in self._latest_exchanges if found.reached_s >= span.begin_s)
        leads = ((boundary, self._leads[boundary]) for boundary in _ORDER if boundary in self._leads)
        known = ((at, found, each.rows(span)) for at, each in leads if (found := each.over(span)) is not None)
        return GpuTimeRow(
            device=self.device,
            steps=int(sums.steps),
            idle_ratio=sums.idle_ratio,
            maybe_idle_ratio=sums.maybe_idle_ratio,
            leads=tuple(_lead_row(*each) for each in known),
            lead_error_us=None if math.isnan(sums.lead_error_us) else sums.lead_error_us,
            timed_s=sums.total_ns / 1e9,
            bounded=not sums.unbounded,
            exchanges=tuple(latest if is_recent else self.exchanges.exchanges),
            accumulation=sums.accumulation,
        )


def _lead_row(boundary: str, sums: _Leads, windows: Sequence[_Leads]) -> LeadRow:
    """The lead at one boundary; None where it is not known at the majority."""
    are_known = 2 * sums.known > sums.seen
    medians = ((row.median_us / row.known, row.known) for row in windows if row.known)
    return LeadRow(
        boundary=boundary,
        seen=int(sums.seen),
        min_us=sums.min_us if are_known else None,
        median_us=weighted_median(medians) if are_known else None,
        max_us=sums.max_us if are_known else None,
        stream_idle_ratio=sums.idle / sums.seen if sums.seen else 0.0,
        mean_us=sums.mean_us / sums.with_mean if 2 * sums.with_mean > sums.seen else None,
        at_least_us=None if math.isinf(sums.at_least_us) else sums.at_least_us,
    )


class GpuTimeStats:
    """One process's time on its GPUs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._devices: dict[int, _Device] = {}
        self._first: tuple[int, float] | None = None  # device and end of the first window: perhaps warm-up
        self._memory: dict[int, TorchMemory] = {}
        self._retries_before: dict[int, int] = {}
        self._frees_before: dict[int, tuple[float, int]] = {}  # when, and how many
        self._pinned_bytes: dict[int, int] = {}  # the most
        self._peak_bytes: dict[int, int] = {}  # the most: the program may reset it
        self._allocated: dict[int, MemoryReadings] = {}  # since the allocator's cache has filled

    def add_record(self, record: GpuTime | TorchMemory, first_step_s: float | None) -> None:
        """Fold a record; ``first_step_s``: end of the first window in which its process made steps."""
        if isinstance(record, GpuTime):
            self.add_window(record)
        else:
            self.add_memory(record, first_step_s)

    def add_window(self, record: GpuTime) -> None:
        """Fold a window."""
        device = self._devices.get(record.device)
        if device is None:
            if len(self._devices) >= _DEVICES:
                return
            device = self._devices[record.device] = _Device(record.device)
        if self._first is None:
            self._first = record.device, record.t
            device.times.keep_apart(record.t)
        device.add_window(record)

    def add_memory(self, record: TorchMemory, first_step_s: float | None) -> None:
        """Fold the counters of torch's allocator."""
        if record.device not in self._memory and len(self._memory) >= _DEVICES:
            return
        self._memory[record.device] = record
        for most, value in ((self._pinned_bytes, record.pinned_bytes), (self._peak_bytes, record.peak_bytes)):
            if value is not None:
                most[record.device] = max(most.get(record.device, 0), value)
        settled = first_step_s is not None and record.t >= first_step_s + _SETTLED_S
        if settled and record.allocated_bytes is not None:
            self._allocated.setdefault(record.device, MemoryReadings()).add(record.t, record.allocated_bytes)
        if settled and record.alloc_retries is not None:
            self._retries_before.setdefault(record.device, record.alloc_retries)
        if settled and record.device_frees is not None:
            self._frees_before.setdefault(record.device, (record.t, record.device_frees))

    def recent(self, now_s: float) -> tuple[GpuTimeRow | None, GpuShares | None]:
        """Recent steps on the GPU on which most of them were timed; None without timed steps."""
        spans = {device: _recent_span(device, now_s) for device in self._devices.values()}
        return self._on_most(spans, is_recent=True)

    def run(self) -> tuple[GpuTimeRow | None, GpuShares | None]:
        """The same over the whole run; without its first window, perhaps warm-up, if enough is left."""
        if self._first is None:
            return None, None
        later = Span(self._first[1])
        spans = dict.fromkeys(self._devices.values(), later)
        device, first = _most(spans), self._devices[self._first[0]]
        sums = device.times.over(later) if device is not None else None
        if sums is None or (sums.steps < _STEPS and device is first):
            spans = {first: Span()}
        return self._on_most(spans, is_recent=False)

    def _on_most(self, spans: dict[_Device, Span], *, is_recent: bool) -> tuple[GpuTimeRow | None, GpuShares | None]:
        device = _most(spans)
        if device is None:
            return None, None
        return device.row(spans[device], is_recent=is_recent), device.times.over(spans[device])

    def memory(self, gpu_uuids: Sequence[str]) -> list[TorchMemoryRow]:
        """The memory that torch's allocator holds on each device."""
        devices = sorted(self._memory)
        uuids = dict(zip(devices, gpu_uuids, strict=True)) if len(devices) == len(gpu_uuids) else {}
        rows = []
        for device in devices:
            last, before = self._memory[device], self._retries_before.get(device)
            retries = last.alloc_retries - before if before is not None and last.alloc_retries is not None else None
            held = (last.allocated_bytes, last.reserved_bytes)
            most = (self._pinned_bytes.get(device), self._peak_bytes.get(device))
            growth = self._allocated[device].steady_growth(0.0) if device in self._allocated else None
            figures = (*held, retries, self._frees_per_s(last), *most, growth)
            rows.append(TorchMemoryRow(device, uuids.get(device), *figures))
        return rows

    def _frees_per_s(self, last: TorchMemory) -> float | None:
        since_s, before = self._frees_before.get(last.device, (last.t, 0))
        if last.device_frees is None or last.t <= since_s:
            return None
        return (last.device_frees - before) / (last.t - since_s)


def _recent_span(device: _Device, now_s: float) -> Span:
    latest = next((row for row in reversed(device.times.rows(last=_RECENT)) if row.steps), None)
    steps_s = _STEPS * latest.total_ns / latest.steps / 1e9 if latest is not None else 0.0
    return Span(now_s - max(WINDOW_S, min(_LONGEST_S, steps_s)))


def _most(spans: dict[_Device, Span]) -> _Device | None:
    """The device on which most steps were timed."""
    steps = {device: sums.steps for device, span in spans.items() if (sums := device.times.over(span)) is not None}
    most = max(steps, key=steps.__getitem__, default=None)
    return most if most is not None and steps[most] else None
