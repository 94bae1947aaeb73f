"""The Steps record of a window: its steps, and all else that the loop did meanwhile."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.agent.ring import layout
from tuimon.records import RankStep, Steps
from tuimon.sources.loop.ended import EndedSteps
from tuimon.sources.loop.machine import OpenPhase
from tuimon.sources.markers.gc_pauses import GcPauses
from tuimon.sources.markers.histogram import histogram, quantile
from tuimon.sources.markers.thread_loops import ThreadLoop
from tuimon.sources.markers.window_steps import WindowSteps, phase_times

#: Samples or tokens of a window at most, as a record holds them: a damaged ring may have any number.
_MOST = 1 << 62


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
        outside_ns = loop.machine.outside.take_ns(window.end_ns)
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
