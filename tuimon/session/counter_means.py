"""Means of a GPU's counters over given stretches of a run: those in which its training steps."""

from __future__ import annotations

import math
import struct
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from tuimon.records import Gpu
from tuimon.session.windows import HISTORY_LIMIT

#: Least time that a mean covers (s): our choice; the driver's own figures are of up to a second each.
LEAST_S = 1.0
#: Least time of a mean by the energy counter (s), which advances every 0.1 s at the slowest: an error of 2 %.
_LEAST_ENERGY_S = 5.0
#: Least part of a figure's time that lies in the stretch, for the figure to count: our choice; of less it mostly shows
#: what was around it.
_LEAST_PART = 0.5
#: Longest time between two records of which the later one is (s): the longest ``--interval`` is 60 s.
_LONGEST_S = 90.0

_RATIOS = ("util_ratio", "sm_ratio", "occupancy_ratio", "tensor_ratio", "dram_ratio")
_RATES = ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s")
#: The fields of ``Gpu`` that have a mean.
COUNTERS = (*_RATIOS, *_RATES, "power_w", "sm_clock_mhz")
_UTIL = COUNTERS.index("util_ratio")
#: When it was read, the energy counter, the counters; the buffered samples of the utilisation follow, in percent.
_ROW = struct.Struct(f"2d{len(COUNTERS)}f")


class SteppingSpan(NamedTuple):
    """A stretch of a run in which steps were made, in seconds of the records' clock."""

    begin_s: float
    end_s: float
    steps_ratio: float = 1.0  # share of it that the steps take; the rest is evaluation, or was held up by a profiler


class GpuMeans(Struct, frozen=True, gc=False):
    """Means of a GPU's counters over the time in which its training steps; None where too little was measured."""

    util_ratio: float | None = None
    # Its bounds in the steps alone: a figure may be of time outside them as well, in evaluation.
    util_at_least: float | None = None
    util_at_most: float | None = None
    steps_ratio: float | None = None  # share of the time of these figures in steps
    sm_ratio: float | None = None
    occupancy_ratio: float | None = None
    tensor_ratio: float | None = None
    dram_ratio: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    watts: float | None = None  # by the energy counter


class _Reading(NamedTuple):
    """The counts of one record since the one before."""

    begin_s: float
    end_s: float
    joules: float | None
    columns: tuple[float, ...]  # one a counter; nan: not measured
    util_samples: bytes  # percent, evenly spread over the time

    def pieces(self, column: int) -> Iterator[tuple[float, float, float]]:
        """Stretches of the reading's time, each with the column's value; nothing where it was not measured."""
        value = self.columns[column]
        if math.isnan(value):
            return
        samples = self.util_samples if column == _UTIL else b""
        if not samples:
            yield self.begin_s, self.end_s, value
            return
        each_s = (self.end_s - self.begin_s) / len(samples)
        for number, sample in enumerate(samples):
            yield self.begin_s + number * each_s, self.begin_s + (number + 1) * each_s, sample / 100


class CounterHistory:
    """A GPU's records of up to half an hour, packed, and their means."""

    def __init__(self) -> None:
        self._rows: deque[bytes] = deque(maxlen=HISTORY_LIMIT)
        self._held: tuple[list[SteppingSpan], GpuMeans | None] | None = None  # what was asked last

    def add_record(self, record: Gpu) -> None:
        """Append a record, later than all before."""
        self._held = None
        values = (getattr(record, name) for name in COUNTERS)
        known = (math.nan if value is None else value for value in values)
        energy_j = math.nan if record.energy_j is None else record.energy_j
        samples = bytes(min(100, round(100 * ratio)) for ratio in record.util_samples)
        self._rows.append(_ROW.pack(record.t, energy_j, *known) + samples)

    def within(self, begin_s: float, end_s: float) -> slice:
        """Which of the records lie between two moments, the last may begin in there and end later."""
        times = [_ROW.unpack_from(row)[0] for row in self._rows]
        return slice(bisect_right(times, begin_s), bisect_left(times, end_s) + 1)

    def means(self, spans: Sequence[SteppingSpan]) -> GpuMeans | None:
        """Means over these stretches, in order of time and apart; None without any reading of them.

        A figure counts for the part of its time that lies in a stretch. Worked example: utilisation of 0.2 s each, and
        steps from 10.05 s on: of the figure of 10.0 to 10.2 three quarters count, and all of those that follow.
        """
        if self._held is None or self._held[0] != spans:
            self._held = list(spans), self._means(spans)
        return self._held[1]

    def util_mean(self, spans: Sequence[SteppingSpan]) -> float | None:
        """The mean of the utilisation alone, for many GPUs: a third of what all means take."""
        if self._held is not None and self._held[0] == spans:
            return self._held[1].util_ratio if self._held[1] is not None else None
        readings = list(self._readings(spans[0].begin_s)) if spans else []
        return _mean(_parts_of(_UTIL, readings, spans))

    def _means(self, spans: Sequence[SteppingSpan]) -> GpuMeans | None:
        readings = list(self._readings(spans[0].begin_s)) if spans else []
        if not readings:
            return None
        columns = [_parts_of(column, readings, spans) for column in range(len(COUNTERS))]
        return GpuMeans(
            **{name: _mean(parts) for name, parts in zip(COUNTERS, columns, strict=True)},
            **_util_bounds(columns[_UTIL]),
            watts=_mean(list(_parts(spans, _watts(readings))), _LEAST_ENERGY_S),
        )

    def _readings(self, since_s: float) -> Iterator[_Reading]:
        """The readings after a moment, newest first."""
        newest_first = map(_unpacked, reversed(self._rows))
        for (end_s, end_j, columns, samples), (begin_s, begin_j, _, _) in pairwise(newest_first):
            if end_s <= since_s:
                return
            if 0.0 < end_s - begin_s <= _LONGEST_S:
                joules = end_j - begin_j
                # lower than before: the driver was loaded anew
                yield _Reading(begin_s, end_s, joules if joules >= 0.0 else None, columns, samples)


def _unpacked(row: bytes) -> tuple[float, float, tuple[float, ...], bytes]:
    t, energy_j, *columns = _ROW.unpack_from(row)
    return t, energy_j, tuple(columns), row[_ROW.size :]


def _watts(readings: Sequence[_Reading]) -> Iterator[tuple[float, float, float]]:
    for reading in readings:
        if reading.joules is not None:
            yield reading.begin_s, reading.end_s, reading.joules / (reading.end_s - reading.begin_s)


class _Part(NamedTuple):
    """A figure, and how long a time it is of."""

    value: float
    whole_s: float
    steps_s: float  # of that, in steps


def _parts_of(column: int, readings: Sequence[_Reading], spans: Sequence[SteppingSpan]) -> list[_Part]:
    return list(_parts(spans, (piece for reading in readings for piece in reading.pieces(column))))


def _parts(spans: Sequence[SteppingSpan], pieces: Iterator[tuple[float, float, float]]) -> Iterator[_Part]:
    """The figures of which enough lies in the spans."""
    for begin_s, end_s, value in pieces:
        inside_s = steps_s = 0.0
        for span in islice(spans, bisect_right(spans, begin_s, key=attrgetter("end_s")), None):
            if span.begin_s >= end_s:
                break
            overlap_s = min(end_s, span.end_s) - max(begin_s, span.begin_s)
            inside_s += overlap_s
            steps_s += overlap_s * span.steps_ratio
        if steps_s > 0.0 and inside_s >= _LEAST_PART * (end_s - begin_s):
            yield _Part(value, end_s - begin_s, steps_s)


def _mean(parts: Sequence[_Part], least_s: float = LEAST_S) -> float | None:
    """The mean of figures, each by its time in steps; None for less time than this."""
    steps_s = sum(part.steps_s for part in parts)
    if sum(part.whole_s for part in parts) < least_s:
        return None
    return sum(part.value * part.steps_s for part in parts) / steps_s


def _util_bounds(parts: Sequence[_Part]) -> dict[str, float | None]:
    """How long kernels ran in steps: of 1 s with kernels for 0.7 s and steps for 0.9 s, for 0.6 to 0.7 s."""
    steps_s, whole_s = sum(part.steps_s for part in parts), sum(part.whole_s for part in parts)
    if whole_s < LEAST_S:
        return {}
    least_s = sum(max(0.0, part.value * part.whole_s - (part.whole_s - part.steps_s)) for part in parts)
    most_s = sum(min(part.steps_s, part.value * part.whole_s) for part in parts)
    return {
        "util_at_least": least_s / steps_s,
        "util_at_most": min(1.0, most_s / steps_s),
        "steps_ratio": steps_s / whole_s,
    }
