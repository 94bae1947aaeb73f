"""GPUs: their latest record, the course of their counters, and means of these over the steps of the training."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import structs

from tuimon.records import GPU_FACTS, Gpu, Process, bare_uuid
from tuimon.session.rows import COUNTERS, GpuMeans, GpuRow, SteppingSpan
from tuimon.session.series import LATEST, NEVER, ROWS, WINDOW_S, Series, Span

#: Most Xid errors that are kept, the newest.
_XIDS = 32
#: Most GPUs and MIG instances of a node that are remembered, and causes of lower clocks.
_DEVICES, _CAUSES = 256, 64
#: Windows of each length that a series holds of what holds clocks down: those of the last 30 s as they were recorded.
_CAUSE_ROWS = 32
#: Least time that a mean covers (s): our choice; the driver's own figures are of up to a second each.
LEAST_S = 1.0
#: Least time of a mean by the energy counter (s), which advances every 0.1 s at the slowest: an error of 2 %.
_LEAST_ENERGY_S = 5.0
#: Least part of a figure's time that lies in the stretch, for the figure to count: our choice; of less it mostly shows
#: what was around it.
_LEAST_PART = 0.5
#: Longest time between two records of which the later one is (s): the longest ``--interval`` is 60 s.
_LONGEST_S = 90.0


class _Counters(NamedTuple):
    """The counters of a GPU since its record before; a row of a ``Series``. Not a number: not measured."""

    begin_s: float
    end_s: float
    joules: float
    joules_s: float  # in which these were used
    util_ratio: float
    sm_ratio: float
    occupancy_ratio: float
    tensor_ratio: float
    dram_ratio: float
    pcie_rx_bytes_per_s: float
    pcie_tx_bytes_per_s: float
    nvlink_rx_bytes_per_s: float
    nvlink_tx_bytes_per_s: float
    power_w: float
    sm_clock_mhz: float
    memory_used_bytes: float


class _Util(NamedTuple):
    """The utilisation in a stretch of time, as the driver has buffered it; a row of a ``Series``."""

    begin_s: float
    end_s: float
    util_ratio: float


def _mean_of(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _most_of(values: Sequence[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


class _Part(NamedTuple):
    """Counters of which enough lies in steps."""

    row: Any  # of one of the series
    whole_s: float
    steps_s: float  # of that, in steps


def _parts(rows: Sequence[_Counters] | Sequence[_Util], spans: Sequence[SteppingSpan]) -> list[_Part]:
    found = []
    for row in rows:
        inside_s = steps_s = 0.0
        for span in islice(spans, bisect_right(spans, row.begin_s, key=attrgetter("end_s")), None):
            if span.begin_s >= row.end_s:
                break
            overlap_s = min(row.end_s, span.end_s) - max(row.begin_s, span.begin_s)
            inside_s += overlap_s
            steps_s += overlap_s * span.steps_ratio
        whole_s = row.end_s - row.begin_s
        if steps_s > 0.0 and inside_s >= _LEAST_PART * whole_s:
            found.append(_Part(row, whole_s, steps_s))
    return found


def _figures(parts: Sequence[_Part], name: str) -> list[tuple[_Part, float]]:
    """A counter where it was measured."""
    return [(part, value) for part in parts if not math.isnan(value := getattr(part.row, name))]


def _mean(parts: Sequence[tuple[_Part, float]], least_s: float) -> float | None:
    """The mean of figures, each by its time in steps; None for less time than this."""
    if sum(part.whole_s for part, _ in parts) < least_s:
        return None
    return sum(value * part.steps_s for part, value in parts) / sum(part.steps_s for part, _ in parts)


def _util_bounds(parts: Sequence[tuple[_Part, float]]) -> dict[str, float | None]:
    """How long kernels ran in steps: of 1 s with kernels for 0.7 s and steps for 0.9 s, for 0.6 to 0.7 s."""
    steps_s, whole_s = sum(part.steps_s for part, _ in parts), sum(part.whole_s for part, _ in parts)
    if whole_s < LEAST_S:
        return {}
    least_s = sum(max(0.0, value * part.whole_s - (part.whole_s - part.steps_s)) for part, value in parts)
    most_s = sum(min(part.steps_s, value * part.whole_s) for part, value in parts)
    return {
        "util_at_least": least_s / steps_s,
        "util_at_most": min(1.0, most_s / steps_s),
        "steps_ratio": steps_s / whole_s,
    }


class _Clocks(NamedTuple):
    """Records of what holds the clocks down; a row of a ``Series``. Counts: by cause, the millionths of its ratios."""

    begin_s: float
    end_s: float
    records: float


class Device:
    """The data kept of one GPU or MIG instance."""

    def __init__(self) -> None:
        how = {**dict.fromkeys(COUNTERS, _mean_of), "memory_used_bytes": _most_of}
        self.latest: Gpu | None = None
        self.xids: deque[int] = deque(maxlen=_XIDS)
        self._counters = Series(_Counters, ROWS, how)
        self._util = Series(_Util, ROWS, {"util_ratio": _mean_of})
        self._clocks = Series(_Clocks, _CAUSE_ROWS)
        self._causes: list[str] = []  # their numbers
        self._held: tuple[list[SteppingSpan], GpuMeans | None] | None = None  # what was queried last

    def add_record(self, record: Gpu) -> None:
        """Fold a record, later than all before."""
        self._held, before = None, self.latest
        seldom = {name: getattr(before, name) for name in GPU_FACTS if before and getattr(record, name) is None}
        self.latest = structs.replace(record, **seldom) if seldom else record
        self.xids.extend(record.xids)
        begin_s = before.t if before is not None and 0.0 < record.t - before.t <= _LONGEST_S else record.t
        joules = joules_s = 0.0
        if before is not None and before.t == begin_s and record.energy_j is not None and before.energy_j is not None:
            used_j = record.energy_j - before.energy_j
            if used_j >= 0.0:  # else the driver was loaded anew
                joules, joules_s = used_j, record.t - begin_s
        values = (getattr(record, name) for name in (*COUNTERS, "memory_used_bytes"))
        known = (math.nan if value is None else value for value in values)
        self._counters.append(_Counters(begin_s, record.t, joules, joules_s, *known))
        samples = record.util_samples or ([record.util_ratio] if record.util_ratio is not None else [])
        each_s = (record.t - begin_s) / max(1, len(samples))
        for number, ratio in enumerate(samples if each_s else ()):
            self._util.append(_Util(begin_s + number * each_s, begin_s + (number + 1) * each_s, min(1.0, ratio)))
        for throttle in record.throttled:
            if throttle.cause not in self._causes and len(self._causes) < _CAUSES:
                self._causes.append(throttle.cause)
        ratios = {each.cause: 1.0 if each.ratio is None else each.ratio for each in record.throttled}
        millionths = {at: round(1e6 * ratios[cause]) for at, cause in enumerate(self._causes) if cause in ratios}
        self._clocks.append(_Clocks(record.t, record.t, 1), millionths)

    def course(self, span: Span) -> dict[str, tuple[float | None, ...]]:
        """The counters in stretches of equal length of a span, or of the latest records."""
        rows = self._counters.course(span, ROWS)
        columns = zip(_Counters._fields, zip(*rows, strict=True), strict=True) if rows else ()
        return {name: tuple([None if math.isnan(value) else value for value in column]) for name, column in columns}

    def means(self, spans: Sequence[SteppingSpan]) -> GpuMeans | None:
        """Means over these stretches, in order of time and apart; None without any reading of them.

        A figure counts for the part of its time that lies in a stretch. Worked example: utilisation of 0.2 s each, and
        steps from 10.05 s on: of the figure of 10.0 to 10.2 three quarters count, and all of those that follow.
        """
        if self._held is None or self._held[0] != spans:
            self._held = list(spans), self._means(spans)
        return self._held[1]

    def _means(self, spans: Sequence[SteppingSpan]) -> GpuMeans | None:
        since = Span(spans[0].begin_s) if spans else NEVER
        rows = [row for row in self._counters.rows(since) if row.end_s > row.begin_s]
        if not rows:
            return None
        parts, util = _parts(rows, spans), _parts(self._util.rows(since), spans)
        figures = {name: _mean(_figures(parts, name), LEAST_S) for name in COUNTERS}
        watts = [(part, part.row.joules / part.row.joules_s) for part in parts if part.row.joules_s]
        return GpuMeans(
            **{**figures, "util_ratio": _mean(_figures(util, "util_ratio"), LEAST_S)},
            **_util_bounds(_figures(util, "util_ratio")),
            watts=_mean(watts, _LEAST_ENERGY_S),
        )

    def utilisation(self, spans: Sequence[SteppingSpan]) -> float | None:
        """The mean over these stretches; the latest where there is none yet."""
        means = self.means(spans)
        if means is not None and means.util_ratio is not None:
            return means.util_ratio
        return self.latest.util_ratio if self.latest is not None else None

    def throttled(self) -> tuple[tuple[str, float], ...]:
        """Share of the last 30 s by cause, most first; of the records where the driver does not count the time."""
        span = Span(last_s=WINDOW_S)
        sums, counts = self._clocks.over(span), self._clocks.counts(span)
        shares = [(self._causes[cause], n / 1e6 / sums.records) for cause, n in counts.items()] if sums else []
        return tuple(sorted(shares, key=lambda share: -share[1]))


class DeviceTable:
    """Folds Gpu records, by UUID."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}

    def add_gpu(self, record: Gpu) -> None:
        """Fold one GPU's counters."""
        if record.uuid not in self._devices:
            if len(self._devices) >= _DEVICES:
                return
            self._devices[record.uuid] = Device()
        self._devices[record.uuid].add_record(record)

    def latest(self) -> list[Gpu]:
        """The latest record of each."""
        return [device.latest for device in self._devices.values() if device.latest is not None]

    def utilisations(self, uuids: Collection[str], spans: Sequence[SteppingSpan]) -> dict[str, float | None]:
        """The utilisation of each of these GPUs, as ``GpuRow.figures`` has it."""
        return {uuid: self._devices[uuid].utilisation(spans) for uuid in self._devices.keys() & uuids}

    @property
    def is_held_down(self) -> bool:
        """True if something has held the clocks of any down in the last 30 s."""
        return any(device.throttled() for device in self._devices.values())

    def rows(
        self,
        now_s: float,
        processes: Iterable[Process],
        focus: Process | None = None,
        steps_per_s: float | None = None,
        spans: Sequence[SteppingSpan] = (),
        course: Span = LATEST,
    ) -> list[GpuRow]:
        """All GPUs, those that the run uses first.

        ``steps_per_s`` and ``spans``: of the process in focus, and when it made these steps; ``course``: what
        the histories are of.
        """
        run = list(processes)
        pids = {process.pid for process in run}
        live = [process for process in run if not process.ended] or run
        used = self._used(live)
        means = {uuid: device.means(spans) for uuid, device in self._devices.items()}
        joules = self._joules_per_step(focus, steps_per_s, means)
        rows = [
            GpuRow(
                latest=latest,
                stale_s=max(0.0, now_s - latest.t),
                used_by_run=uuid in used,
                run_pids=frozenset(process.pid for process in latest.processes if process.pid in pids),
                course=device.course(course),
                throttled=device.throttled(),
                joules_per_step=joules.get(uuid),
                xids=tuple(device.xids),
                means=means[uuid],
            )
            for uuid, device in self._devices.items()
            if (latest := device.latest) is not None
        ]
        return sorted(rows, key=_order)

    def _used(self, processes: Collection[Process]) -> set[str]:
        """UUIDs of what the run uses: as its processes report, the driver lists them, or its environment selects."""
        reported = {bare_uuid(uuid) for process in processes for uuid in process.gpu_uuids}
        pids = {process.pid for process in processes}
        used = set()
        for gpu in self.latest():
            if bare_uuid(gpu.uuid) in reported or pids.intersection(gpu.pids) or (gpu.chosen and not reported):
                used |= {gpu.uuid, gpu.parent_uuid or gpu.uuid}
        return used

    def _joules_per_step(
        self, focus: Process | None, steps_per_s: float | None, means: Mapping[str, GpuMeans | None]
    ) -> Mapping[str, float]:
        """Energy of a step by the UUID of the first GPU of the process in focus; empty unless known to be its own."""
        if focus is None or not steps_per_s:
            return {}
        uuids = {bare_uuid(uuid) for uuid in focus.gpu_uuids}
        gpus = [gpu for gpu in self.latest() if bare_uuid(gpu.uuid) in uuids]
        watts = [found.watts for gpu in gpus if (found := means[gpu.uuid]) is not None and found.watts is not None]
        if not gpus or len(watts) < len(uuids):
            return {}
        return {min(gpus, key=lambda gpu: gpu.index).uuid: sum(watts) / steps_per_s}


def _order(row: GpuRow) -> tuple[bool, int, bool, str]:
    """Sort key: GPUs that the run uses first, MIG instances after the GPU that they are part of."""
    return not row.used_by_run, row.latest.index, row.latest.parent_uuid is not None, row.latest.uuid
