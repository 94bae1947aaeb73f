"""The quality of stack sampling: rate, coverage, failures, cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tuimon.node_ids import own_id
from tuimon.records import GIL_WINDOW_S, Gil, Place, Stacks
from tuimon.session.series import FEW_ROWS, Series, Span, row_of
from tuimon.threshold import MOST

#: The time that the figures cover, in seconds.
SPAN_S = 60.0
#: A window is recorded only when it ends, so coverage is counted up to the end of the latest one, unless that is longer
#: ago than this: the longest window, and the time that ending it may take.
_LATE_S = 26.0
#: Samples that a share of the GIL needs: about two windows of 0.6 s at 50 Hz.
_MIN_SAMPLES = 50
#: Samples that show whether a function holds the GIL most of the time or hardly ever: one such window.
_MIN_FUNCTION_SAMPLES = 30
#: Cycles that an estimated step rate needs.
_MIN_CYCLES = 3
#: Thread ids from here on, above the highest pid of Linux, are pthread ids: all that py-spy has on Python <= 3.10.
_PTHREAD_IDS = 1 << 22


class Sampling(NamedTuple):
    """Sampling of a process, or of all training processes; ``samples``, ``failed`` and ``lost`` since the beginning."""

    rate_hz: float | None  # achieved within its windows; of several processes that of the one in focus
    coverage_ratio: float | None  # wall time within windows / wall time; without pauses and lost windows
    samples: int
    failed: int  # samples that py-spy could not read
    folded: int  # of rare stacks that are not listed, summed over threads
    lost: int  # windows whose samples were all lost
    in_process: bool  # the latest window of any of them was sampled by the agent inside: Python frames only
    cpu_ratio: float | None = None  # the cost of py-spy in all; 1.0 = one core; None until measured


class _Windows(NamedTuple):
    """Windows of samples of a process; a row of a ``Series``."""

    begin_s: float
    end_s: float
    sampled_s: float  # without windows that were lost
    samples: float
    failed: float
    folded: float
    lost: float  # windows
    windows: float  # that were not lost
    counted: float  # of these, in which cycles were counted
    cycles: float
    cycles_s: float  # in which the cycles were counted


class Sampler:
    """The sampling of one process."""

    def __init__(self) -> None:
        self.series = Series(_Windows, FEW_ROWS)
        self.in_process = False

    def add_window(self, record: Stacks) -> None:
        is_counted = record.cycles is not None and not record.lost
        self.series.fold(
            record,
            sampled_s=0.0 if record.lost else record.window_s,
            windows=not record.lost,
            counted=is_counted,
            cycles=record.cycles if is_counted and record.cycles else 0,
            # a window of n samples covers only the n - 1 intervals between them
            cycles_s=record.window_s * (1 - 1 / max(record.samples, 2)) if is_counted else 0.0,
        )
        self.in_process = record.in_process if not record.lost else self.in_process

    def rate_and_coverage(self, span: Span) -> tuple[float | None, float | None]:
        """Samples a second within the windows of a span, and the share of its time that lies in windows."""
        sums, begin_s, end_s = self.series.part(span.begin_s, span.end_s), math.inf, -math.inf
        if (ever := self.series.over()) is not None:
            is_silent = ever.end_s + _LATE_S <= span.end_s < math.inf
            begin_s, end_s = max(ever.begin_s, span.begin_s), span.end_s if is_silent else ever.end_s
        sampled_s = sums.sampled_s if sums is not None else 0.0
        coverage = min(sampled_s / (end_s - begin_s), 1.0) if end_s > begin_s else None
        return sums.samples / sampled_s if sums is not None and sampled_s else None, coverage

    def steps_per_second(self, since_s: float) -> float | None:
        """Backward passes a second, estimated from the order of samples; None if these are too far apart."""
        sums = self.series.over(Span(since_s))
        if sums is None or sums.counted <= MOST * sums.windows or sums.cycles < _MIN_CYCLES:
            return None
        return sums.cycles / sums.cycles_s if sums.cycles_s > 0 else None


def sampling(samplers: Sequence[Sampler], span: Span, cpu_ratio: float | None) -> Sampling | None:
    """The figures of some processes, the one in focus first; None before the first window.

    A span without end lasts to the latest window. A process without a finished window counts as not covered.
    """
    ever = [sums for one in samplers if (sums := one.series.over()) is not None]
    if not ever:
        return None
    each = [one.rate_and_coverage(span) for one in samplers if one.series]
    covered = [ratio for _, ratio in each if ratio is not None]
    return Sampling(
        rate_hz=each[0][0],
        coverage_ratio=sum(covered) / len(samplers) if covered else None,
        samples=int(sum(sums.samples for sums in ever)),
        failed=int(sum(sums.failed for sums in ever)),
        folded=int(sum(sums.folded for sums in ever)),
        lost=int(sum(sums.lost for sums in ever)),
        in_process=any(one.in_process for one in samplers),
        cpu_ratio=cpu_ratio,
    )


_GilWindow = row_of("samples")
_GilKey = tuple[int, str, str]  # thread, file and function
_ANYWHERE, _IN_FUNCTIONS = "", "any"  # in place of a function


class GilWindows(Series[Any]):
    """The threads of a process that held the GIL, window by window; answers cover the last minute of its steps.

    A window counts samples by thread, file and function: for each thread all of its samples, those in each function,
    and those in any function.
    """

    __slots__ = ("_pid",)

    def __init__(self, pid: int) -> None:
        super().__init__(_GilWindow, FEW_ROWS)
        self._pid = pid

    def add_record(self, record: Gil) -> None:
        counts = Counter[_GilKey]()
        for thread in record.threads:
            counts[thread.tid, "", _ANYWHERE] += thread.count
        for each in record.functions:
            counts[each.tid, each.file, each.function] += each.count
            counts[each.tid, "", _IN_FUNCTIONS] += each.count
        self.fold(record, counts, begin_s=record.t - GIL_WINDOW_S)

    def ratio(self, steps_s: float, tid: int) -> float | None:
        """Share of time in which a thread held the GIL; None before there are 50 samples, or without its OS thread id.

        ``steps_s``: when the steps begin; imports before that hold the GIL all the time.

        The error is up to about a tenth, as py-spy does not report its number of samples; less over several windows.
        """
        counts, samples = self._latest(steps_s)
        if samples < _MIN_SAMPLES:
            return None
        if tid != self._pid and any(own_id(holder) >= _PTHREAD_IDS for holder, *_ in counts):
            return None
        return min(counts.get((tid, "", _ANYWHERE), 0) / samples, 1.0)

    def gil_share_in(self, steps_s: float, tid: int, place: Place) -> float | None:
        """Share of time in which a thread held the GIL in a user function, or below.

        None before there are 30 samples, or if no function was recorded.
        """
        counts, samples = self._latest(steps_s)
        if samples < _MIN_FUNCTION_SAMPLES or (tid, "", _IN_FUNCTIONS) not in counts:
            return None
        return min(counts.get((tid, place.file, place.function), 0) / samples, 1.0)

    def _latest(self, steps_s: float) -> tuple[Mapping[_GilKey, int], int]:
        """The counts of the last minute since the steps began, and the number of samples in it."""
        since_s = max([steps_s, *(row.begin_s - SPAN_S for row in self.rows(last=1))])
        span = Span(since_s + GIL_WINDOW_S / 2)  # of windows that begin later
        sums = self.over(span)
        return self.counts(span), int(sums.samples) if sums is not None else 0
