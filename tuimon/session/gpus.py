"""GPUs: their latest record, the course of their counters, and means of these over the training's steps."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct, structs

from tuimon.bounds import HELD
from tuimon.interval import Interval
from tuimon.records import GPU_FACTS, GPUS_A_WINDOW, Gpu, GpuProcess, Process, bare_uuid, used_uuids
from tuimon.session.series import FEW_ROWS, LATEST, NEVER, ROWS_EACH, K, KeyNumbers, Series, Span, Stretch, row_of
from tuimon.session.steps import SteppingSpan
from tuimon.threshold import LARGER, MOST, TINY


class GpuMeans(Struct, frozen=True, gc=False):
    """Means of a GPU's counters over the time in which its training makes steps; None if too little was measured.

    The memory in use is a maximum, not a mean.
    """

    util_ratio: float | None = None
    # Bounds of the utilisation in the steps alone: figures may also cover time outside them, such as evaluation.
    util_at_least: float | None = None
    util_at_most: float | None = None
    steps_ratio: float | None = None  # how much of the time that these means cover lies in steps
    sm_ratio: float | None = None
    occupancy_ratio: float | None = None
    tensor_ratio: float | None = None
    dram_ratio: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    memory_used_bytes: float | None = None
    watts: float | None = None  # mean power by the energy counter


#: The fields of ``Gpu`` that have a mean, or a maximum.
COUNTERS = tuple(name for name in GpuMeans.__struct_fields__ if name in Gpu.__struct_fields__)


class OnGpu(NamedTuple):
    """A process on a GPU; shares are of the time that ``GpuMeans`` covers."""

    pid: int  # 0 for all that the driver does not name here
    present: float  # of several with pid 0 the sum
    computing: Interval  # its kernels run; the upper end counts the time in which the driver measures no process's


#: Figures count as old after three windows, but not before these seconds: the driver may be polled only every 5 s.
_OLD_S, _OLD_WINDOWS = 8.0, 3


class GpuRow(Struct, frozen=True):
    """One GPU or MIG instance: its latest record, and figures from many records."""

    latest: Gpu
    stale_s: float  # age of ``latest``
    used_by_run: bool  # a process of the run has a context on it, or reports to use it
    holders: Sequence[OnGpu] = ()  # over the steps that the phases cover; without steps, over the last 30 s
    run_pids: Mapping[int, int | None] = {}  # those of the holders that belong to the run, and their ranks
    # Values by field of ``Gpu``, oldest first: of the latest records; over the whole run, means of equal stretches.
    course: Mapping[str, tuple[float | None, ...]] = {}
    # (cause, share of the steps' time in which it held the clocks down), most first; without steps, of the last 30 s
    throttled: tuple[tuple[str, float], ...] = ()
    joules_per_step: float | None = None  # sum over the GPUs of the process in focus, given at the first
    xids: tuple[int, ...] = ()  # since the run began
    resent_per_min: int = 0  # packets, over PCIe
    means: GpuMeans | None = None  # over the steps that the phases cover; without steps, over the last 30 s
    is_divided: bool = False  # into MIG instances, which are rows of their own
    old_after_s: float = _OLD_S

    @property
    def is_old(self) -> bool:
        """True if its driver has given no figures for a long time."""
        return self.stale_s >= self.old_after_s

    @property
    def busy_counter(self) -> str:
        """The counter that says how busy it is: the multiprocessors' if a MIG instance reports no utilisation."""
        is_dark = self.latest.parent_uuid is not None and self.figures.util_ratio is None
        return "sm_ratio" if is_dark else "util_ratio"

    def history(self, counter: str) -> tuple[float | None, ...]:
        return self.course.get(counter, ())

    @property
    def figures(self) -> GpuMeans:
        """The figures that people read next to a counter's name: means, or the latest values until there is a mean."""
        means = self.means or GpuMeans()
        missing = {name: getattr(self.latest, name) for name in COUNTERS if getattr(means, name) is None}
        return structs.replace(means, **missing)

    @property
    def memory_ratio(self) -> float | None:
        """Share of its memory in use, at most in the steps; None if unknown."""
        used, total = self.figures.memory_used_bytes, self.latest.memory_total_bytes
        return used / total if used is not None and total else None

    @property
    def others(self) -> list[OnGpu]:
        """The processes on it that certainly do not belong to the run.

        Empty if the driver names no process of the run: its pids may then come from another namespace.
        """
        return [each for each in self.holders if self.run_pids and each.pid not in self.run_pids]

    @property
    def taken_ratio(self) -> float:
        """The share of the GPU's time that these processes take."""
        return min(1.0, sum(each.computing.low for each in self.others))

    @property
    def is_shared(self) -> bool:
        """True if another process is on it as well: another rank, or one that is not of the run."""
        return sum(each.present for each in self.holders) > 1.0 + TINY


#: Least time that a mean covers (s): our choice; the driver's own figures are of up to a second each.
MIN_MEAN_S = 1.0
#: Least time of a mean by the energy counter (s), which advances every 0.1 s at the slowest: an error of 2 %.
_MIN_ENERGY_S = 5.0
#: Least share of the multiprocessors that a kernel keeps busy: one of 200, more than any GPU has.
_ONE_SM = 1 / 200
#: Counters of a GPU's parts (GPM).
_PART_COUNTERS = ("sm_ratio", "occupancy_ratio", "tensor_ratio", "dram_ratio")
#: Longest time since the record before that a record can cover (s): the longest ``--interval`` is 60 s.
_LONGEST_S = 90.0

#: The counters of a GPU since its previous record, and its energy in ``joules_s`` seconds. Not a number: not measured.
_Counters = row_of("joules", "joules_s", *COUNTERS)
#: The utilisation in a stretch of time, as the driver buffered it.
_Util = row_of("util_ratio")


def _without_dead_counters(record: Gpu) -> Gpu:
    """The record without counters that others contradict: kernels that use no multiprocessor, or the reverse."""
    used, active = record.util_ratio, record.sm_ratio
    if used is None or active is None:
        return record
    if active < _ONE_SM * used:
        return structs.replace(record, **dict.fromkeys(_PART_COUNTERS))
    if not used and active >= TINY:
        return structs.replace(record, util_ratio=None, util_samples=[])
    return record


def _stands_still(record: Gpu, before: Gpu) -> bool:
    """True if the utilisation is the same to the last digit, although the GPU works far more, or less, than before.

    A GPU in use all the time, or never, may do so. Of an H100 at work, at most five readings in a row were the same.
    """
    used = {before.util_ratio, *before.util_samples, record.util_ratio, *record.util_samples}
    works = ((record.sm_ratio, before.sm_ratio), (record.power_w, before.power_w))
    moves = any(a and b and max(a, b) > LARGER * min(a, b) for a, b in works)
    return len(used) == 1 and moves and 0.0 < (record.util_ratio or 0.0) < 1.0


def _mean_of(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _most_of(values: Sequence[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


class _Part(NamedTuple):
    """A row of counters, enough of whose time lies in steps."""

    row: int
    whole_s: float
    steps_s: float  # the part of its time in steps


def _parts(begins_s: Sequence[float], ends_s: Sequence[float], spans: Sequence[SteppingSpan]) -> list[_Part]:
    found, spans_end_s = [], [span.end_s for span in spans]
    for row, (begin_s, end_s) in enumerate(zip(begins_s, ends_s, strict=True)):
        inside_s = steps_s = 0.0
        for span in islice(spans, bisect_right(spans_end_s, begin_s), None):
            if span.begin_s >= end_s:
                break
            overlap_s = min(end_s, span.end_s) - max(begin_s, span.begin_s)
            inside_s += overlap_s
            steps_s += overlap_s * span.steps_ratio
        if steps_s > 0.0 and inside_s >= MOST * (end_s - begin_s):  # else it mostly shows the time around the stretch
            found.append(_Part(row, end_s - begin_s, steps_s))
    return found


def _mean(parts: Sequence[_Part], column: Sequence[float], least_s: float = MIN_MEAN_S) -> float | None:
    """The mean of a counter's measured parts, weighted by their time in steps; None if that is below ``least_s``."""
    known = [(value, part) for part in parts if not math.isnan(value := column[part.row])]
    if not known or sum(part.whole_s for _, part in known) < least_s:
        return None
    return sum(value * part.steps_s for value, part in known) / sum(part.steps_s for _, part in known)


def _util_bounds(parts: Sequence[_Part], column: Sequence[float]) -> dict[str, float | None]:
    """Bounds of the time in steps with a kernel: if 1 s has kernels for 0.7 s and steps for 0.9 s, 0.6 to 0.7 s."""
    steps_s, whole_s = sum(part.steps_s for part in parts), sum(part.whole_s for part in parts)
    if whole_s < MIN_MEAN_S:
        return {}
    ran = [(column[part.row] * part.whole_s, part) for part in parts]
    return {
        "util_at_least": sum(max(0.0, s - (part.whole_s - part.steps_s)) for s, part in ran) / steps_s,
        "util_at_most": min(1.0, sum(min(part.steps_s, s) for s, part in ran) / steps_s),
        "steps_ratio": steps_s / whole_s,
    }


def _shares(windows: Series[Any], keys: KeyNumbers[K], spans: Sequence[SteppingSpan]) -> Mapping[K, Sequence[float]]:
    """By key: its times, counted in microseconds, as shares of the time in these stretches."""
    times_us, covered_s = Counter[int](), 0.0
    for span in (Span(each.begin_s, each.end_s) for each in spans) if keys.numbers else ():
        times_us.update(windows.counts(span))
        columns = windows.columns(span, ("begin_s", "end_s"))
        covered_s += sum(columns["end_s"]) - sum(columns["begin_s"])
    times = keys.figures(times_us) if covered_s else {}
    return {key: [us / 1e6 / covered_s for us in figures] for key, figures in times.items()}


class Course(Mapping[str, tuple[float | None, ...]]):
    """The counters of a GPU over time, and its beginnings and ends, by name: computed on demand, for charts."""

    def __init__(self, counters: Series[Any], span: Span) -> None:
        self._counters, self._span = counters, span
        self._rows: list[Any] | None = None  # of one named tuple, which has no type

    def __getitem__(self, name: str) -> tuple[float | None, ...]:
        if name not in _Counters._fields:
            raise KeyError(name)
        if self._rows is None:
            self._rows = self._counters.course(self._span, ROWS_EACH)
        values = [getattr(row, name) for row in self._rows]
        return tuple([None if math.isnan(value) else value for value in values])

    def __iter__(self) -> Iterator[str]:
        return iter(_Counters._fields)

    def __len__(self) -> int:
        return len(_Counters._fields)


class DeviceHistory:
    """The data kept for one GPU or MIG instance."""

    def __init__(self, first: Gpu) -> None:
        how = {**dict.fromkeys(COUNTERS, _mean_of), "memory_used_bytes": _most_of}
        self.latest = first
        self._stuck_at: float | None = None  # the utilisation that no longer moves
        self.xids: deque[int] = deque(maxlen=HELD)
        self._resent = (-math.inf, 0)  # when packets sent again were last counted, and how many had been added
        self._counters = Series(_Counters, ROWS_EACH, how)
        self._util = Series(_Util, ROWS_EACH, {"util_ratio": _mean_of})
        self._causes = KeyNumbers[str](1)  # by cause of lower clocks: its time in microseconds
        # by process on it: its time, that in which its kernels run, and that in which no process's kernels are measured
        self._holders = KeyNumbers[int](3)
        self._process_use = Series(Stretch, FEW_ROWS)

    def add_record(self, record: Gpu) -> None:
        """Fold a record, later than all before."""
        before, record = self.latest, _without_dead_counters(record)
        if record.energy_j and record.energy_j == before.energy_j and record.t > before.t:  # no GPU uses none
            record = structs.replace(record, **dict.fromkeys(COUNTERS), util_samples=[])
        if _stands_still(record, before):
            self._stuck_at = record.util_ratio
        if record.util_ratio != self._stuck_at:
            self._stuck_at = None
        else:
            record = structs.replace(record, util_ratio=None, util_samples=[])
        seldom = {name: getattr(before, name) for name in GPU_FACTS if getattr(record, name) is None}
        self.latest = structs.replace(record, **seldom) if seldom else record
        self.xids.extend(record.xids)
        begin_s = before.t if 0.0 < record.t - before.t <= _LONGEST_S else record.t
        joules = joules_s = 0.0
        if before.t == begin_s and record.energy_j is not None and before.energy_j is not None:
            used_j = record.energy_j - before.energy_j
            if used_j > 0.0:  # otherwise the driver was reloaded, or repeats itself
                joules, joules_s = used_j, record.t - begin_s
        counted, count = before.pcie_replays, record.pcie_replays
        if counted is not None and count is not None and count != counted:
            self._resent = record.t, max(0, count - counted)
        covers_us = 1e6 * (record.t - begin_s)
        causes = ((each.cause, 1.0 if each.ratio is None else each.ratio) for each in record.throttled)
        times = self._causes.counts((cause, round(covers_us * ratio)) for cause, ratio in causes)
        self._counters.fold(record, times, begin_s=begin_s, joules=joules, joules_s=joules_s)
        held = (
            (pid, *(round(covers_us * ratio) for ratio in ratios)) for pid, *ratios in _process_use(record.processes)
        )
        self._process_use.append(Stretch(begin_s, record.t), self._holders.counts(held))
        samples = record.util_samples or ([record.util_ratio] if record.util_ratio is not None else [])
        each_s = (record.t - begin_s) / max(1, len(samples))
        for number, ratio in enumerate(samples if each_s else ()):
            self._util.append(_Util(begin_s + number * each_s, begin_s + (number + 1) * each_s, min(1.0, ratio)))

    def course(self, span: Span) -> Course:
        """The counters over a span, in stretches of equal length; for the last 30 s, record by record."""
        return Course(self._counters, span)

    def means(self, spans: Sequence[SteppingSpan]) -> GpuMeans | None:
        """Means over these stretches, which are in order of time and do not overlap; None if no reading lies in them.

        A figure counts for the part of its time that lies in a stretch. Worked example: each figure covers 0.2 s, and
        steps begin at 10.05 s. Three quarters of the figure from 10.0 to 10.2 s count, and all of each later one.
        """
        since = Span(spans[0].begin_s) if spans else NEVER
        columns, utils = self._counters.columns(since), self._util.columns(since)
        begins_s, ends_s, util = columns["begin_s"], columns["end_s"], utils["util_ratio"]
        if not any(end_s > begin_s for begin_s, end_s in zip(begins_s, ends_s, strict=True)):
            return None
        parts = _parts(begins_s, ends_s, spans)
        util_parts = _parts(utils["begin_s"], utils["end_s"], spans)
        most_bytes = _most_of([columns["memory_used_bytes"][part.row] for part in parts])
        watts = [j / s if s else math.nan for j, s in zip(columns["joules"], columns["joules_s"], strict=True)]
        return GpuMeans(
            **{
                **{name: _mean(parts, columns[name]) for name in COUNTERS},
                "util_ratio": _mean(util_parts, util),
                "memory_used_bytes": None if math.isnan(most_bytes) else most_bytes,
            },
            **_util_bounds(util_parts, util),
            watts=_mean(parts, watts, _MIN_ENERGY_S),
        )

    def throttled(self, spans: Sequence[SteppingSpan]) -> tuple[tuple[str, float], ...]:
        """Share of the time in these stretches by cause, most first; all of a record's time if that is not counted."""
        causes = _shares(self._counters, self._causes, spans)
        return tuple(sorted(((cause, held) for cause, (held,) in causes.items()), key=lambda each: -each[1]))

    def holders(self, spans: Sequence[SteppingSpan]) -> tuple[OnGpu, ...]:
        """The processes on it in these stretches; those of its latest record if there were none."""
        found = _shares(self._process_use, self._holders, spans)
        sums: dict[int, list[float]] = {pid: list(share) for pid, share in found.items() if share[0]}
        for pid, *share in _process_use(self.latest.processes) if not sums else ():
            sums[pid] = [sum(both) for both in zip(sums.get(pid, [0.0] * 3), share, strict=True)]
        return tuple(
            OnGpu(pid, present, Interval(computes, min(present, computes + unknown)))
            for pid, (present, computes, unknown) in sums.items()
        )

    def resent(self, now_s: float) -> int:
        """Packets that were sent again over PCIe in the last minute: the driver is asked once a minute."""
        since_s, packets = self._resent
        return packets if now_s - since_s <= 60.0 else 0


def gpu_rows(
    devices: Mapping[str, DeviceHistory],
    now_s: float,
    processes: Iterable[Process],
    focus: Process | None = None,
    steps_per_s: float | None = None,
    spans: Sequence[SteppingSpan] = (),
    course: Span = LATEST,
    interval_s: float = 1.0,
) -> list[GpuRow]:
    """The GPUs of a machine, those that the run uses first; MIG instances after the GPU that they are part of.

    ``steps_per_s`` and ``spans``: of the process in focus, and when it made these steps; ``course``: the span of the
    histories; ``interval_s``: the length of a window.
    """
    run = list(processes)
    ranks = {process.pid: process.rank for process in run}
    live = [process for process in run if not process.ended] or run
    latest = [device.latest for device in devices.values()]
    reported = {bare_uuid(uuid) for process in live for uuid in process.gpu_uuids}
    held = {uuid: device.holders(spans) for uuid, device in devices.items()}
    seen = [structs.replace(gpu, pids=[*gpu.pids, *_pids(held[gpu.uuid])]) for gpu in latest]
    used = used_uuids(seen, reported, {process.pid for process in live})
    means = {uuid: device.means(spans) for uuid, device in devices.items()}
    joules, divided = _joules_per_step(latest, focus, steps_per_s, means), {gpu.parent_uuid for gpu in latest}
    old_after_s = max(_OLD_S, _OLD_WINDOWS * interval_s * max(1, -(-len(used) // GPUS_A_WINDOW)))
    rows = [
        GpuRow(
            latest=device.latest,
            stale_s=max(0.0, now_s - device.latest.t),
            used_by_run=uuid in used,
            holders=held[uuid],
            run_pids={pid: ranks[pid] for pid in (*_pids(held[uuid]), *_pids(device.latest.processes)) if pid in ranks},
            course=device.course(course),
            throttled=device.throttled(spans),
            joules_per_step=joules.get(uuid),
            xids=tuple(device.xids),
            resent_per_min=device.resent(now_s),
            means=means[uuid],
            is_divided=uuid in divided,
            old_after_s=old_after_s,
        )
        for uuid, device in devices.items()
    ]
    return sorted(rows, key=lambda row: (not row.used_by_run, (at := row.latest).index, at.parent_uuid or "", at.uuid))


def _pids(processes: Iterable[OnGpu | GpuProcess]) -> list[int]:
    return [process.pid for process in processes]


def _process_use(processes: Sequence[GpuProcess]) -> Iterator[tuple[int, float, float, float]]:
    """By pid: 1, the share of time in which its kernels ran (0 if it was idle), and 1 if that was not measured."""
    unknown = float(not any(each.sm_ratio is not None for each in processes))
    return ((each.pid, 1.0, each.sm_ratio or 0.0, unknown) for each in processes)


def _joules_per_step(
    latest: Iterable[Gpu], focus: Process | None, steps_per_s: float | None, means: Mapping[str, GpuMeans | None]
) -> Mapping[str, float]:
    """A step's energy, by the UUID of the first GPU of the process in focus; empty if others may use these GPUs."""
    if focus is None or not steps_per_s:
        return {}
    gpus = [gpu for gpu in latest if focus.uses(gpu)]
    watts = [found.watts for gpu in gpus if (found := means[gpu.uuid]) is not None and found.watts is not None]
    if not gpus or len(watts) < len(focus.gpu_uuids):
        return {}
    return {min(gpus, key=lambda gpu: gpu.index).uuid: sum(watts) / steps_per_s}
