"""Time on the GPU's clock and torch's memory of one process, folded from GpuTime and TorchMemory records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from tuimon.records import GpuAccumulation, GpuExchange, GpuTime, Lead, TorchMemory
from tuimon.session.memory_readings import MemoryReadings
from tuimon.session.rows import GpuTimeRow, LeadRow, TorchMemoryRow
from tuimon.session.windows import WINDOW_S, Thinned, Window, weighted_median

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


def latest(records: Iterable[GpuTime]) -> list[GpuExchange]:
    """The latest of several windows."""
    return [found for record in records for found in record.exchanges][-_RECENT:]


def summed(records: Iterable[GpuTime]) -> GpuAccumulation | None:
    """The sums of several windows; None without any."""
    known = [record.accumulation for record in records if record.accumulation is not None]
    if not known:
        return None
    return GpuAccumulation(sum(r.steps for r in known), sum(r.own_ns for r in known), sum(r.last_ns for r in known))


#: Most devices of a process that are remembered.
_DEVICES = 64
#: Recent is what the last 30 s hold, or the time of so many steps where these take longer, up to twenty minutes.
_STEPS = 8
_LONGEST_S = 1200.0
#: Most records of that time: one every two seconds, of one GPU or in turn of several.
_RECORDS = 1024
#: Retries of the allocator are counted from this long after the first step on: before, its caches fill up.
_SETTLED_S = 10.0
#: The order in which boundaries are listed.
_ORDER = ("fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end")


class GpuShare(Struct, frozen=True, gc=False):
    """A phase's shares of the GPU's time in steps."""

    span: float
    idle: float
    maybe_idle: float


class GpuShares:
    """Sums over any number of GpuTime records of one device."""

    def __init__(self) -> None:
        self.steps = 0
        self.total_ns = 0
        self._sums: dict[str, list[int]] = {}  # phase: span, idle, maybe idle

    def add_window(self, record: GpuTime) -> None:
        """Add a window."""
        self.steps += record.steps
        self.total_ns += record.total_ns
        for phase in record.phases:
            if phase.name != "eval":
                sums = self._sums.setdefault(phase.name, [0, 0, 0])
                sums[0] += phase.span_ns
                sums[1] += phase.idle_ns
                sums[2] += phase.maybe_idle_ns

    def of(self, name: str) -> GpuShare | None:
        """A phase's shares; None when nothing was timed, and for evaluation, which is beside the steps."""
        if not self.total_ns or name == "eval":
            return None
        span, idle, maybe_idle = self._sums.get(name, (0, 0, 0))
        return GpuShare(span / self.total_ns, idle / self.total_ns, maybe_idle / self.total_ns)

    @property
    def idle_ratio(self) -> float:
        """Share of the GPU's time in which it certainly had nothing to do."""
        return sum(sums[1] for sums in self._sums.values()) / self.total_ns if self.total_ns else 0.0

    @property
    def maybe_idle_ratio(self) -> float:
        """Share of the GPU's time that may have been idle as well."""
        return sum(sums[2] for sums in self._sums.values()) / self.total_ns if self.total_ns else 0.0


class _Recent(Struct, frozen=True, gc=False):
    """The records of recent steps, and what they come to; good until the oldest of them is no longer recent."""

    until_s: float
    records: list[GpuTime]
    shares: GpuShares


class GpuTimeStats:
    """One process's time on its GPUs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._window: Window[GpuTime] = Window(_LONGEST_S, _RECORDS)
        self._run: dict[int, GpuShares] = {}  # by device, without the first window
        self._run_windows: dict[int, Thinned[GpuTime]] = {}  # by device, of the same
        self._run_exchanges: dict[int, SpreadExchanges] = {}  # by device, of the same
        self._first: GpuTime | None = None
        self._held: _Recent | None = None
        self._held_row: GpuTimeRow | None = None
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
        self._held = self._held_row = None
        self._window.append(record)
        if self._first is None:
            self._first = record
        elif record.device in self._run or len(self._run) < _DEVICES:
            self._run.setdefault(record.device, GpuShares()).add_window(record)
            self._run_windows.setdefault(record.device, Thinned()).append(record)
            self._run_exchanges.setdefault(record.device, SpreadExchanges()).add_window(record)

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

    def row(self, now_s: float) -> GpuTimeRow | None:
        """Recent steps on the GPU on which most of them were timed; None without timed steps."""
        recent = self._recent(now_s)
        if not recent.records:
            return None
        if self._held_row is None:
            self._held_row = self._row(recent.records, recent.shares, latest(recent.records), summed(recent.records))
        return self._held_row

    def run_row(self) -> GpuTimeRow | None:
        """Like ``row``, over the whole run as in ``run_shares``; the leads are of windows evenly spread over it."""
        device, shares = self._run_on()
        windows = self._run_windows.get(-1 if device is None else device)
        records = windows.records if windows is not None else [self._first] if self._first is not None else []
        if not records or shares is None:
            return None
        spread = self._run_exchanges.get(records[0].device)
        return self._row(records, shares, spread.exchanges if spread is not None else (), summed(records))

    def _row(
        self,
        records: Sequence[GpuTime],
        shares: GpuShares,
        exchanges: Sequence[GpuExchange],
        accumulation: GpuAccumulation | None,
    ) -> GpuTimeRow:
        return GpuTimeRow(
            device=records[0].device,
            steps=shares.steps,
            idle_ratio=shares.idle_ratio,
            maybe_idle_ratio=shares.maybe_idle_ratio,
            leads=tuple(_lead_rows(records)),
            lead_error_us=next((r.lead_error_us for r in reversed(records) if r.lead_error_us is not None), None),
            timed_s=shares.total_ns / 1e9,
            bounded=all(record.bounded for record in records),
            exchanges=tuple(exchanges),
            accumulation=accumulation,
        )

    def shares(self, now_s: float) -> GpuShares | None:
        """Shares of the phases over recent steps; None without any."""
        recent = self._recent(now_s)
        return recent.shares if recent.records else None

    def run_shares(self) -> GpuShares | None:
        """Shares of the phases over the whole run; without its first window, perhaps warm-up, if enough is left."""
        return self._run_on()[1]

    def _run_on(self) -> tuple[int | None, GpuShares | None]:
        """The device on which most steps of the run were timed, and its shares."""
        device = max(self._run, key=lambda device: self._run[device].steps, default=None)
        shares, first = self._run[device] if device is not None else None, self._first
        if first is None or (shares is not None and (shares.steps >= _STEPS or device != first.device)):
            return device, shares
        windows = self._run_windows[first.device].records if device is not None else []
        return first.device, _summed([first, *windows])

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

    def _recent(self, now_s: float) -> _Recent:
        """The recent steps of the GPU with most of them."""
        if self._held is None or now_s > self._held.until_s:
            self._held, self._held_row = self._recent_at(now_s), None
        return self._held

    def _recent_at(self, now_s: float) -> _Recent:
        steps: Counter[int] = Counter()
        recent: dict[int, list[GpuTime]] = {}
        until_s = math.inf
        timed = [record for record in self._window.records if record.steps]
        stays_s = (max(WINDOW_S, min(_LONGEST_S, _STEPS * each.total_ns / each.steps / 1e9)) for each in timed)
        ends = [(record.t + s, record) for record, s in zip(timed, stays_s, strict=True)]
        kept = [(ends_s, record) for ends_s, record in ends if ends_s >= now_s]
        self._window.records = [record for _, record in kept]  # the others never are again
        for ends_s, record in kept:
            until_s = min(until_s, ends_s)
            steps[record.device] += record.steps
            recent.setdefault(record.device, []).append(record)
        device, count = next(iter(steps.most_common(1)), (0, 0))
        records = recent[device] if count else []
        return _Recent(until_s, records, _summed(records))


def _summed(records: Iterable[GpuTime]) -> GpuShares:
    shares = GpuShares()
    for record in records:
        shares.add_window(record)
    return shares


def _lead_rows(records: Sequence[GpuTime]) -> Iterable[LeadRow]:
    """A row for each boundary, in the order of the loop."""
    by_boundary: dict[str, list[Lead]] = {}
    for record in records:
        for lead in record.leads:
            by_boundary.setdefault(lead.boundary, []).append(lead)
    for boundary in (*_ORDER, *sorted(by_boundary.keys() - set(_ORDER))):
        if boundary in by_boundary:
            yield _lead_row(boundary, by_boundary[boundary])


def _lead_row(boundary: str, leads: Sequence[Lead]) -> LeadRow:
    """The lead at one boundary over all windows where it is known; None where that is not the majority."""
    seen = sum(lead.count for lead in leads)
    known = [lead for lead in leads if lead.median_us is not None]
    stream_idle_ratio = sum(lead.idle_count for lead in leads) / seen if seen else 0.0
    mean_us, bounds = _mean_us(leads), [lead.at_least_us for lead in leads]
    at_least_us = min((bound for bound in bounds if bound is not None), default=None) if None not in bounds else None
    if 2 * sum(lead.count for lead in known) <= seen:
        return LeadRow(boundary, seen, None, None, None, stream_idle_ratio, mean_us, at_least_us)
    return LeadRow(
        boundary=boundary,
        seen=seen,
        min_us=min(lead.min_us for lead in known if lead.min_us is not None),
        median_us=weighted_median((lead.median_us, lead.count) for lead in known if lead.median_us is not None),
        max_us=max(lead.max_us for lead in known if lead.max_us is not None),
        stream_idle_ratio=stream_idle_ratio,
        mean_us=mean_us,
        at_least_us=at_least_us,
    )


def _mean_us(leads: Sequence[Lead]) -> float | None:
    """Mean lead over the windows in which it is known; None where these are not the majority."""
    known = [(lead.mean_us, lead.count) for lead in leads if lead.mean_us is not None]
    counted = sum(count for _, count in known)
    if 2 * counted <= sum(lead.count for lead in leads):
        return None
    return sum(mean * count for mean, count in known) / counted
