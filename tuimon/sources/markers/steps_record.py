"""Makes the Steps record of a window: its steps, their lengths, and garbage collections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from tuimon.agent.ring import layout
from tuimon.records import BETWEEN, STEP_PHASES, PhaseTime, RankStep, SlowStep, Steps, length_bucket
from tuimon.sources.loop.machine import OpenPhase
from tuimon.sources.loop.step import COUNTED, Step
from tuimon.sources.markers.thread_loops import ThreadLoop
from tuimon.sources.window_lengths import stride_of

#: A step of at least this many times the median is a long one: our choice.
_LONG = 2
#: The excess time of long steps counts half after some 30 windows.
_DECAY = 0.98
#: Long steps come at random: in one window they may take this many times the expected time. More has another cause.
_UNEXPECTED = 4


class CountedPhases:
    """Learns the phases of timed steps, and divides the time of steps that were only counted.

    Counted steps are divided like timed steps of the usual length. If they took longer in all, as with a checkpoint,
    the excess is divided like that of long timed steps, up to the excess that these make likely. The rest is a pause
    outside all pairs of markers.

    >>> phases = CountedPhases()
    >>> _ = phases.learn([Step(total_ns=10, phases={"forward": 4, "backward": 6})] * 3)
    >>> phases.divide(5, 90)  # five steps of the usual length, and an excess of 40
    {'forward': 20, 'backward': 30, 'other': 40}
    """

    def __init__(self) -> None:
        self._usual_ns: dict[str, float] = {}  # of a step of the usual length
        self._beyond_ns: dict[int, dict[str, float]] = {}  # of long steps, beyond that, by the bits of their length
        self._timed = 0.0  # steps from which these were learned

    def learn(self, steps: Sequence[Step]) -> dict[str, int]:
        """Learn from the timed steps of one window; returns the sums of their phases."""
        if not steps:
            return {}
        limit_ns = _LONG * median(step.total_ns for step in steps)
        usual = [step.phases for step in steps if step.total_ns <= limit_ns]
        usual_sums = summed(usual)
        self._usual_ns = {name: sums / len(usual) for name, sums in usual_sums.items()}
        self._timed = self._timed * _DECAY + len(steps)
        for sums in self._beyond_ns.values():
            for name in sums:
                sums[name] *= _DECAY
        longer = [step for step in steps if step.total_ns > limit_ns]
        for step in longer:
            sums = self._beyond_ns.setdefault(step.total_ns.bit_length(), {})
            for name, ns in step.phases.items():
                sums[name] = sums.get(name, 0.0) + max(0.0, ns - self._usual_ns.get(name, 0.0))
        return summed([usual_sums, *(step.phases for step in longer)])

    def divide(self, count: int, total_ns: int) -> dict[str, int]:
        """The phases of ``count`` steps that were only counted, with this total time; empty until a step was timed."""
        each_ns = sum(self._usual_ns.values())
        if each_ns <= 0:
            return {}
        ratio = min(1.0, total_ns / (count * each_ns)) if count else 0.0
        phases = {name: ns * count * ratio for name, ns in self._usual_ns.items()}
        left_ns = total_ns - sum(phases.values())
        longest_ns = int(left_ns + each_ns)  # a step that took longer cannot be one of them
        may_be = [sums for bits, sums in self._beyond_ns.items() if bits <= longest_ns.bit_length()]
        known_ns = sum(map(sum, (sums.values() for sums in may_be)))
        times = min(_UNEXPECTED * count / self._timed, left_ns / known_ns) if known_ns > 0 else 0.0
        for sums in may_be:
            for name, ns in sums.items():
                phases[name] = phases.get(name, 0.0) + times * ns
        apart = BETWEEN if BETWEEN in phases else "other"
        phases[apart] = phases.get(apart, 0.0) + left_ns - times * known_ns
        whole = {name: int(ns) for name, ns in phases.items()}
        whole[max(whole, key=whole.__getitem__)] += total_ns - sum(whole.values())
        return whole

    def add_up(self, steps: Sequence[Step]) -> dict[str, int]:
        """The phases of the steps of a window, summed; they add up to the steps' total time."""
        timed_sums = self.learn([step for step in steps if step.timed])
        sums = summed([timed_sums, *(step.phases for step in steps if not step.timed)])
        counted_ns = sums.pop(COUNTED, 0)
        if not counted_ns:
            return sums
        return summed([sums, self.divide(sum(step.count for step in steps if step.only_counted), counted_ns)])


def summed(phases: Sequence[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in phases:
        for name, duration_ns in each.items():
            sums[name] = sums.get(name, 0) + duration_ns
    return sums


def phase_times(sums_ns: Mapping[str, int], eval_ns: int = 0) -> list[PhaseTime]:
    """The phases of a record from their sums."""
    everything = {"eval": eval_ns, **sums_ns} if eval_ns else sums_ns
    return [PhaseTime(name, total_ns) for name, total_ns in everything.items() if total_ns > 0]


def rank_steps(ended: Sequence[Step], end_ns: int, intervals: int = 1) -> list[RankStep]:
    """The steps to compare with other ranks: multiples of a power of two, so that all ranks choose the same.

    ``intervals``: how many the window covers; the windows of other ranks may be shorter.
    """
    # 45 bytes of log each; in half a minute 60 to 120 of a fast loop
    stride = stride_of(sum(step.count for step in ended), 4 * intervals)
    return [
        RankStep(
            step.index,
            max(0, end_ns - step.end_ns) // 1000,
            *[max(0, step.phases.get(name, 0)) // 1000 for name in (*STEP_PHASES, BETWEEN)],
        )
        for step in ended
        if step.index % stride == 0 and step.usual and step.timed
    ]


#: Samples or tokens of a window at most, as a record holds them: a damaged ring may have any number.
_MOST = 1 << 62
#: Most buckets of a record: a noisy loop fills one with each step, and this many take 300 bytes.
BUCKETS = 32
#: The longest steps keep their own buckets: the upper quantiles come from them.
_KEPT = BUCKETS // 4
_GROUPS = BUCKETS // 2
#: Groups do not reach over the first gaps of 10 %.
_GAP = 10
_GAPS = BUCKETS - _KEPT - _GROUPS - 1


class StepsRecorder:
    """Makes the Steps records of one process."""

    def __init__(self, pid: int, *, reports_gc: bool, has_begun: bool = False) -> None:
        """``reports_gc``: the process marks the pauses of its garbage collector.

        ``has_begun``: earlier records hold its first backward and step.
        """
        self.first_step_ns: int | None = None  # end of the window that held it
        self._pid = pid
        self._reports_gc = reports_gc
        self._pauses: list[tuple[int, int]] = []  # of the garbage collector: end and length, in ns
        self._counted = CountedPhases()
        self._has_begun = has_begun
        self._has_backward = has_begun  # True if a record has held the first
        self._sizes: dict[int, int] = {}  # samples and tokens of this window's steps, by the flag of STEP_SIZE

    def add_step_size(self, flag: int, count: int) -> None:
        """Add the number of samples or tokens in a step, as the program reports it."""
        if flag in (layout.STEP_SAMPLES, layout.STEP_TOKENS):
            self._sizes[flag] = min(self._sizes.get(flag, 0) + count, _MOST)

    def add_pause(self, time_ns: int, length_ns: int) -> None:
        """Add a pause of the garbage collector, which ended at a moment."""
        self._reports_gc = True
        if length_ns <= 3600e9:  # a longer pause is damage
            self._pauses.append((time_ns, length_ns))

    def skip_past(self) -> None:
        """Drop what was added until now: it belongs to no window."""
        self._pauses.clear()
        self._sizes.clear()

    def record(
        self,
        loop: ThreadLoop,
        ended: Sequence[Step],
        begin_ns: int,
        end_ns: int,
        open_phase: OpenPhase | None,
        **more: Any,  # noqa: ANN401  (fields of the record)
    ) -> Steps:
        """The record of a window, in which these steps have ended."""
        usual = [step for step in ended if step.usual]
        timed = [step for step in usual if step.timed]
        lengths = sorted(step.total_ns for step in timed)
        slowest = max(timed, key=lambda step: step.total_ns, default=None)
        count, usual_ns = sum(step.count for step in ended), sum(step.total_ns for step in usual)
        eval_ns, eval_count = loop.steps.take_evaluation()
        backwards, updates = loop.take_counts()
        outside_ns = loop.machine.take_outside_ns(begin_ns, end_ns)
        last_ns = ended[-1].end_ns if ended else None
        first_backward_s = first_step_s = None  # in the records that hold them
        if not self._has_backward and (began_ns := loop.machine.first_backward_ns) is not None:
            self._has_backward, first_backward_s = True, began_ns / 1e9
        if self.first_step_ns is None and ended:
            self.first_step_ns = end_ns
            if not self._has_begun:
                first_step_s = max(0, ended[0].end_ns - ended[0].total_ns) / 1e9
        # a collection after the last step is of the next one, if there is one
        until_ns = last_ns if last_ns is not None else end_ns
        pauses_ns = [length_ns for time_ns, length_ns in self._pauses if time_ns <= until_ns]
        self._pauses = [pause for pause in self._pauses if pause[0] > until_ns]
        sizes, self._sizes = self._sizes, {}
        return Steps(
            t=end_ns / 1e9,
            pid=self._pid,
            window_s=(end_ns - begin_ns) / 1e9,
            count=count,
            total_ns=usual_ns,
            timed=len(lengths) if len(lengths) < count else None,
            min_ns=lengths[0] if lengths else None,
            median_ns=quantile(lengths, 0.5),
            p95_ns=quantile(lengths, 0.95),
            histogram=histogram(lengths),
            slowed=count - sum(step.count for step in usual),
            slowed_ns=sum(step.total_ns for step in ended) - usual_ns,
            phases=phase_times(self._counted.add_up(usual), eval_ns),
            ranges=loop.ranges.take_sums(),
            range_places=loop.ranges.take_places(),
            slowest=SlowStep(slowest.index, slowest.total_ns, phase_times(slowest.phases)) if slowest else None,
            eval_count=eval_count,
            backwards=backwards,
            updates=updates,
            open_phase=open_phase.name if open_phase else None,
            open_for_s=max(0.0, (end_ns - open_phase.since_ns) / 1e9) if open_phase else None,
            outside_s=outside_ns / 1e9 if outside_ns else None,
            first_backward_s=first_backward_s,
            first_step_s=first_step_s,
            last_step_s=last_ns / 1e9 if last_ns and last_ns < begin_ns else None,
            gc_ns=sum(pauses_ns) if self._reports_gc else None,
            gc_count=len(pauses_ns),
            gc_longest_ns=max(pauses_ns, default=0),
            samples=sizes.get(layout.STEP_SAMPLES),
            tokens=sizes.get(layout.STEP_TOKENS),
            **more,
        )


def histogram(lengths_ns: Iterable[int]) -> list[tuple[int, int]]:
    """(bucket, steps) in order, ``BUCKETS`` at most: if there are more, neighbours of few steps become one."""
    entries = sorted(Counter(map(length_bucket, lengths_ns)).items())
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
    """The q-quantile (0..1) of sorted values by the nearest rank; None if there are no values."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None
