"""Time on the GPU's clock and torch's memory of one process, folded from GpuTime and TorchMemory records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from tuimon.bounds import has_room
from tuimon.interval import Interval
from tuimon.records import GPU_BOUNDARIES, STEP_PHASES, GpuAccumulation, GpuTime, TorchMemory
from tuimon.session.machines import GROWTH_S, Growth, readings_of, steady_growth
from tuimon.session.series import (
    FEW_ROWS,
    WHOLE_RUN,
    Joins,
    KeyNumbers,
    Series,
    Span,
    ThinnedRows,
    latest,
    row_of,
    weighted_median,
)


class TorchMemoryRow(Struct, frozen=True, gc=False):
    """torch's allocator on one device of a process."""

    device: int
    uuid: str | None  # None if the process does not report which GPU this is
    allocated_bytes: int | None  # in tensors
    reserved_bytes: int | None  # held by the allocator: in tensors, or free for new ones
    retries: int | None  # allocations that first had to free cached memory, from 10 s after the first step on
    frees_per_s: float | None = None  # calls such as cudaFree, in the same time
    pinned_bytes: int | None = None  # pinned host memory, the most in the whole run
    peak_bytes: int | None = None  # the most in tensors at a time, in the whole run
    ooms: int | None = None  # out-of-memory errors that the process has caught
    growth: Growth | None = None  # growth of the memory in tensors, if it has grown ever since the first steps


class LeadRow(Struct, frozen=True, gc=False):
    """How far launches run ahead of the GPU at one kind of boundary, in us; None if the clocks' offset is unknown."""

    boundary: str
    seen: int  # number of these boundaries
    min_us: float | None
    median_us: float | None
    max_us: float | None
    stream_idle_ratio: float  # share of these boundaries at which the stream was idle
    mean_us: float | None = None  # unlike medians, means add up over the parts of a step
    at_least_us: float | None = None  # lower bound that holds at each of them; may be known if the times are not


class GpuShare(NamedTuple):
    """A phase's shares of the GPU's time in steps."""

    span: float
    idle: Interval  # the part of ``span`` in which the GPU had nothing to do


class GpuTimeRow(NamedTuple):
    """A process's steps on the GPU's clock."""

    device: int
    steps: int  # how many were timed
    idle: Interval  # share of GPU time in which it had nothing to do
    leads: tuple[LeadRow, ...]  # in the order of the loop
    lead_error_us: float | None
    timed_s: float = 0.0  # length of these steps, together
    exchanges: Sequence[TimedExchange] = ()  # only with several ranks
    accumulation: GpuAccumulation | None = None  # sums; only with several ranks
    phases: Mapping[str, GpuShare] = {}  # without evaluation, which is outside the steps; empty if nothing was timed

    def lead(self, boundary: str) -> LeadRow | None:
        """How far launches run ahead at one kind of boundary; None if unknown."""
        return next((row for row in self.leads if row.boundary == boundary), None)


#: Most exchanges held, latest and over the run (joining those of 64 ranks takes 2 ms each time rules judge).
_RECENT_EXCHANGES, _RUN_EXCHANGES = 64, 512
#: Recent figures cover the last 30 s, or this many steps if these take longer.
_STEPS = 8


class _Times(NamedTuple):
    """Steps that were timed on one device in a stretch of a run; a row of a ``Series``. Sums in ns."""

    begin_s: float
    end_s: float
    steps: float
    total_ns: float
    unbounded: float  # windows of old logs: see ``records.GpuTime.bounded``
    lead_error_us: float  # the latest; NaN: unknown
    accumulated_steps: float  # the fields of ``GpuAccumulation``
    own_ns: float
    last_ns: float


class TimedExchange(NamedTuple):
    """A ``GpuExchange`` a second; if there are too many, one every 2 s, then 4 s, at the same moments in all ranks."""

    second: float
    reached_s: float
    forward_ns: float  # NaN: none
    backward_ns: float
    after_ns: float

    @property
    def span_ns(self) -> float:
        """The time from the beginning of the backward pass to the update."""
        return self.backward_ns + self.after_ns


class _Leads(NamedTuple):
    """The leads at one kind of boundary in a stretch of a run: sums over boundaries, in us. A row of a ``Series``."""

    begin_s: float
    end_s: float
    seen: float
    idle: float
    known: float  # boundaries at which the clocks are known well enough
    median_us: float
    with_mean: float
    mean_us: float
    min_us: float = math.inf
    at_least_us: float = -math.inf  # a bound at each of them; minus infinity: not known at some
    max_us: float = -math.inf


#: How leads are joined.
_BOUNDS: Mapping[str, Joins] = {"min_us": min, "at_least_us": min, "max_us": max}


class DeviceTimes:
    """The steps that were timed on one GPU of a process."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.times = Series(_Times, FEW_ROWS, {"lead_error_us": latest})
        # by phase: its time, how much of that the GPU was certainly idle, and how much more it may have been
        self._phases = KeyNumbers[str](3, len(STEP_PHASES))
        self._exchanges = ThinnedRows(TimedExchange, _RECENT_EXCHANGES, _RUN_EXCHANGES)
        self._leads: dict[str, Series[_Leads]] = {}

    def add_window(self, record: GpuTime) -> None:
        accumulated = record.accumulation or GpuAccumulation(0, 0, 0)
        self.times.fold(
            record,
            self._phases.counts(
                (each.name, each.span_ns, each.idle_ns, each.maybe_idle_ns)
                for each in record.phases
                if each.name in STEP_PHASES
            ),
            unbounded=not record.bounded,
            accumulated_steps=accumulated.steps,
            own_ns=accumulated.own_ns,
            last_ns=accumulated.last_ns,
        )
        for each in record.exchanges:
            at_s, forward_ns = each.reached_s, math.nan if each.forward_ns is None else each.forward_ns
            self._exchanges.append(TimedExchange(int(at_s), at_s, forward_ns, each.backward_ns, each.after_ns))
        for lead in record.leads:
            if lead.boundary not in GPU_BOUNDARIES:
                continue
            if lead.boundary not in self._leads:
                self._leads[lead.boundary] = Series(_Leads, FEW_ROWS, _BOUNDS)
            known = lead.count if lead.median_us is not None else 0
            with_mean = lead.count if lead.mean_us is not None else 0
            self._leads[lead.boundary].fold(
                record,
                seen=lead.count,
                idle=lead.idle_count,
                known=known,
                median_us=known * (lead.median_us or 0.0),
                with_mean=with_mean,
                mean_us=with_mean * (lead.mean_us or 0.0),
                min_us=math.inf if not known or lead.min_us is None else lead.min_us,
                at_least_us=-math.inf if lead.at_least_us is None else lead.at_least_us,
                max_us=-math.inf if not known or lead.max_us is None else lead.max_us,
            )

    def over(self, span: Span) -> GpuTimeRow | None:
        sums, phases = self.times.over(span), self._phases.figures(self.times.counts(span))
        if sums is None or not sums.steps:
            return None
        leads = ((boundary, self._leads[boundary]) for boundary in GPU_BOUNDARIES if boundary in self._leads)
        known = ((at, found, each.rows(span)) for at, each in leads if (found := each.over(span)) is not None)
        accumulated = map(int, (sums.accumulated_steps, sums.own_ns, sums.last_ns))
        shares = []
        for span_ns, idle_ns, maybe_idle_ns in (phases.get(name, (0, 0, 0)) for name in STEP_PHASES):
            most_ns = span_ns if sums.unbounded else min(span_ns, idle_ns + maybe_idle_ns)
            idle = Interval(idle_ns, max(idle_ns, most_ns)).times(1 / (sums.total_ns or 1.0))
            shares.append(GpuShare(span_ns / (sums.total_ns or 1.0), idle))
        return GpuTimeRow(
            device=self.device,
            steps=int(sums.steps),
            idle=Interval.sum_of(share.idle for share in shares).up_to(1.0),
            leads=tuple(_lead_row(*each) for each in known),
            lead_error_us=None if math.isnan(sums.lead_error_us) else sums.lead_error_us,
            timed_s=sums.total_ns / 1e9,
            exchanges=self._exchanges.over(span),
            accumulation=GpuAccumulation(*accumulated) if sums.accumulated_steps else None,
            phases=dict(zip(STEP_PHASES, shares, strict=True)) if sums.total_ns else {},
        )

    @property
    def step_s(self) -> float:
        """The mean step in the latest window that has steps; 0 if none has."""
        found = next((row for row in reversed(self.times.rows(last=_RECENT_EXCHANGES)) if row.steps), None)
        return found.total_ns / found.steps / 1e9 if found is not None else 0.0


def _lead_row(boundary: str, sums: _Leads, windows: Sequence[_Leads]) -> LeadRow:
    """The lead at one kind of boundary; None if it is unknown at most of these boundaries."""
    are_known = 2 * sums.known > sums.seen
    medians = ((row.median_us / row.known, row.known) for row in windows if row.known)
    return LeadRow(
        boundary=boundary,
        seen=int(sums.seen),
        min_us=sums.min_us if are_known else None,
        median_us=weighted_median(medians) if are_known else None,
        stream_idle_ratio=sums.idle / sums.seen if sums.seen else 0.0,
        mean_us=sums.mean_us / sums.with_mean if 2 * sums.with_mean > sums.seen else None,
        at_least_us=None if math.isinf(sums.at_least_us) else sums.at_least_us,
        max_us=sums.max_us if are_known else None,
    )


#: The bytes in tensors, once torch's cache has filled.
_Allocated = row_of("held_bytes")


class _Memory(Struct):
    """torch's allocator on one device."""

    latest: TorchMemory
    settled: TorchMemory | None = None  # the first record since the training was settled
    counted: TorchMemory | None = None  # ... the first since then that counts ``device_frees``
    pinned_bytes: int | None = None  # the most
    peak_bytes: int | None = None  # the most: the program may reset it
    allocated: Series[Any] = field(default_factory=lambda: Series(_Allocated, FEW_ROWS, {"held_bytes": latest}))

    def add_record(self, record: TorchMemory, *, is_settled: bool) -> None:
        self.latest = record
        self.pinned_bytes = _most(self.pinned_bytes, record.pinned_bytes)
        self.peak_bytes = _most(self.peak_bytes, record.peak_bytes)
        if not is_settled:
            return
        if record.allocated_bytes is not None:
            self.allocated.append(_Allocated(record.t, record.t, record.allocated_bytes))
        self.settled = self.settled or record
        if record.device_frees is not None:
            self.counted = self.counted or record

    def row(self, device: int, uuid: str | None) -> TorchMemoryRow:
        latest, before = self.latest, self.counted or self.latest
        retries = _more(self.settled.alloc_retries if self.settled is not None else None, latest.alloc_retries)
        frees, seconds = _more(before.device_frees, latest.device_frees), latest.t - before.t
        frees_per_s = frees / seconds if frees is not None and seconds > 0 else None
        most, held = (self.pinned_bytes, self.peak_bytes), self.allocated.columns(Span(last_s=GROWTH_S))
        growth = steady_growth(readings_of(held["end_s"], held["held_bytes"]))
        now = latest.allocated_bytes, latest.reserved_bytes
        return TorchMemoryRow(device, uuid, *now, retries, frees_per_s, *most, latest.ooms, growth)


def _more(before: int | None, now: int | None) -> int | None:
    return now - before if before is not None and now is not None else None


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


class GpuTimeStats:
    """One process's time on its GPUs."""

    def __init__(self) -> None:
        self._devices: dict[int, DeviceTimes] = {}
        self._first: tuple[int, float] | None = None  # device and end of the first window: perhaps warm-up
        self._memory: dict[int, _Memory] = {}

    def add_record(self, record: GpuTime | TorchMemory, first_step_s: float | None) -> None:
        """Fold a record; ``first_step_s``: end of the first window in which its process made steps."""
        known: Mapping[int, object] = self._devices if isinstance(record, GpuTime) else self._memory
        if not has_room(known, record.device):
            return
        if isinstance(record, TorchMemory):
            is_settled = first_step_s is not None and record.t >= first_step_s + 10.0  # before, its caches fill up
            memory = self._memory.setdefault(record.device, _Memory(record))
            memory.add_record(record, is_settled=is_settled)
            return
        device = self._devices.setdefault(record.device, DeviceTimes(record.device))
        if self._first is None:
            self._first = record.device, record.t
            device.times.keep_apart(record.t)
        device.add_window(record)

    def over(self, span: Span, now_s: float) -> GpuTimeRow | None:
        """The steps on the GPU on which most were timed; None if no step was timed.

        A span of the last seconds covers at least the last few steps. One of the whole run leaves out the first window,
        which may be warm-up, if enough other windows remain.
        """
        if self._first is None:
            return None
        rows = []
        for device in self._devices.values():
            within = Span(self._first[1])
            if span.last_s < math.inf:
                last_s = max(span.last_s, _STEPS * device.step_s)
                within = Span(now_s - last_s, last_s=last_s)
            rows.append(device.over(within))
        found = max((row for row in rows if row is not None), key=lambda row: row.steps, default=None)
        is_first = found is None or (found.device == self._first[0] and found.steps < _STEPS)
        return self._devices[self._first[0]].over(WHOLE_RUN) if is_first and span.last_s == math.inf else found

    def memory(self, gpu_uuids: Sequence[str]) -> list[TorchMemoryRow]:
        """The memory that torch's allocator holds on each device."""
        devices = sorted(self._memory)
        uuids = dict(zip(devices, gpu_uuids, strict=True)) if len(devices) == len(gpu_uuids) else {}
        return [self._memory[device].row(device, uuids.get(device)) for device in devices]
