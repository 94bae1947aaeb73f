"""The Steps record of a window: its steps, how long they are, and what else the loop did, such as pauses of GC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tuimon.agent.ring import layout
from tuimon.records import RankStep, Steps, length_bucket
from tuimon.sources.loop.machine import OpenPhase
from tuimon.sources.loop.step import EndedSteps
from tuimon.sources.markers.thread_loops import ThreadLoop
from tuimon.sources.markers.window_steps import WindowSteps, phase_times

#: Samples or tokens of a window at most, as a record holds them: a damaged ring may have any number.
_MOST = 1 << 62
#: A longer pause is no pause but damage, in ns.
_LONGEST_NS = 3_600_000_000_000
#: Most buckets of a record: a noisy loop fills one with each step, and this many take 300 bytes.
BUCKETS = 32
#: The longest steps keep their own buckets: of them the upper quantiles are made.
_KEPT = BUCKETS // 4
_GROUPS = BUCKETS // 2
#: Groups do not reach over the first gaps of 10 %.
_GAP = 10
_GAPS = BUCKETS - _KEPT - _GROUPS - 1
#: Entries in use, each in memory once: 64 ranks hold some 13,000 of them, of a few hundred kinds.
_SHARED: dict[tuple[int, int], tuple[int, int]] = {}
_MOST_SHARED = 4096


class Window(NamedTuple):
    """When a window begins and ends."""

    begin_ns: int
    end_ns: int


class StepsRecorder:
    """Makes the records of one process, one a window; its first backward and first step are in one of them each."""

    def __init__(self, pid: int, gc: GcPauses) -> None:
        self.first_step_ns: int | None = None  # end of the window that held it
        self._pid = pid
        self._gc = gc
        self._has_backward = False  # whether a record has held the first
        self._sizes: dict[int, int] = {}  # samples and tokens of this window's steps, by the flag of STEP_SIZE

    def add_step_size(self, flag: int, count: int) -> None:
        """The program says how many samples or tokens a step holds."""
        if flag in (layout.STEP_SAMPLES, layout.STEP_TOKENS):
            self._sizes[flag] = min(self._sizes.get(flag, 0) + count, _MOST)

    def record(
        self,
        window: Window,
        loop: ThreadLoop,
        ended: EndedSteps,
        steps: WindowSteps,
        *,
        rank_steps: list[RankStep],
        open_phase: OpenPhase | None,
        dropped: int,
        tid: int | None,
    ) -> Steps:
        """The record; ``steps``: those in ``ended``; ``dropped``: markers since the record before."""
        lengths = sorted(steps.lengths_ns)
        backwards, updates = loop.take_counts()
        outside_ns = loop.machine.outside.take_ns(window.begin_ns, window.end_ns)
        last_ns = steps.last_end_ns()
        pauses = self._gc.take_pauses()
        sizes, self._sizes = self._sizes, {}
        return Steps(
            t=window.end_ns / 1e9,
            pid=self._pid,
            window_s=(window.end_ns - window.begin_ns) / 1e9,
            count=steps.count,
            first_index=steps.first_index,
            total_ns=steps.total_ns,
            timed=len(lengths) if len(lengths) < steps.count else None,
            min_ns=lengths[0] if lengths else None,
            median_ns=quantile(lengths, 0.5),
            p95_ns=quantile(lengths, 0.95),
            histogram=histogram(lengths),
            slowed=steps.count - steps.usual,
            slowed_ns=steps.slowed_ns,
            phases=phase_times(steps.phases_ns, ended.eval_ns),
            ranges=loop.ranges.take_sums(),
            range_places=loop.ranges.take_places(),
            slowest=steps.slowest(),
            rank_steps=rank_steps,
            eval_count=ended.eval_count,
            backwards=backwards,
            updates=updates,
            open_phase=open_phase.name if open_phase else None,
            open_for_s=max(0.0, (window.end_ns - open_phase.since_ns) / 1e9) if open_phase else None,
            outside_s=outside_ns / 1e9 if outside_ns else None,
            first_backward_s=self._first_backward_s(loop),
            first_step_s=self._first_step_s(steps, window),
            last_step_s=last_ns / 1e9 if last_ns and last_ns < window.begin_ns else None,
            dropped=dropped,
            gc_ns=pauses.total_ns,
            gc_count=pauses.number,
            gc_longest_ns=pauses.longest_ns,
            samples=sizes.get(layout.STEP_SAMPLES),
            tokens=sizes.get(layout.STEP_TOKENS),
            tid=tid,
        )

    def _first_backward_s(self, loop: ThreadLoop) -> float | None:
        """When the first backward began, if no record has held it."""
        began_ns = loop.machine.first_backward_ns if not self._has_backward else None
        if began_ns is None:
            return None
        self._has_backward = True
        return began_ns / 1e9

    def _first_step_s(self, steps: WindowSteps, window: Window) -> float | None:
        """When the first step began, if no record has held it."""
        first = steps.first() if steps.count and self.first_step_ns is None else None
        if first is None:
            return None
        self.first_step_ns = window.end_ns
        return max(0, first.end_ns - first.total_ns) / 1e9


class Pauses(NamedTuple):
    """``total_ns`` is None where the process does not report its collections."""

    total_ns: int | None
    number: int
    longest_ns: int


class GcPauses:
    """The pauses of one process, as its markers report them."""

    def __init__(self, reported: bool) -> None:
        self._reported = reported
        self._lengths_ns: list[int] = []

    def add_pause(self, length_ns: int) -> None:
        """One collection."""
        self._reported = True
        if length_ns <= _LONGEST_NS:
            self._lengths_ns.append(length_ns)

    def take_pauses(self) -> Pauses:
        """The pauses since the last call."""
        lengths, self._lengths_ns = self._lengths_ns, []
        return Pauses(sum(lengths) if self._reported else None, len(lengths), max(lengths, default=0))


def histogram(lengths_ns: Iterable[int]) -> list[tuple[int, int]]:
    """(bucket, steps) in order, ``BUCKETS`` at most: where there are more, neighbours of few steps become one."""
    entries = sorted(Counter(map(length_bucket, lengths_ns)).items())
    if len(_SHARED) > _MOST_SHARED:
        _SHARED.clear()
    return [_SHARED.setdefault(entry, entry) for entry in _bounded(entries)]


def _bounded(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if len(entries) <= BUCKETS:
        return entries
    body, longest = entries[:-_KEPT], entries[-_KEPT:]
    full = sum(steps for _, steps in body) / _GROUPS
    out: list[tuple[int, int]] = []
    group: list[tuple[int, int]] = []
    gaps = 0
    for entry in body:
        apart = bool(group) and gaps < _GAPS and entry[0] - group[-1][0] > _GAP
        if group and (apart or sum(steps for _, steps in group) >= full):
            out.append(_middle(group))
            group = []
            gaps += apart
        group.append(entry)
    return [*out, _middle(group), *longest]


def _middle(group: list[tuple[int, int]]) -> tuple[int, int]:
    steps = sum(steps for _, steps in group)
    return round(sum(bucket * steps for bucket, steps in group) / steps), steps


def quantile(ordered: list[int], q: float) -> int | None:
    """The q-quantile (0..1) of sorted values by the nearest rank; None of nothing."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None
