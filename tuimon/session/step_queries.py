"""The steps of a run as queries: their times and phases, the samples over them, and phases inferred without markers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from tuimon.records import NO_TORCH_YET
from tuimon.session.focus import FocusedTables
from tuimon.session.rows import PhaseRow, PhaseTable, StepSummary
from tuimon.session.samples.process_samples import ProcessSamples
from tuimon.session.steps.history import WindowBegin
from tuimon.session.steps.phase_table import phase_table
from tuimon.session.steps.split_shares import SplitShares
from tuimon.session.steps.steps import StepStats
from tuimon.session.steps.totals import Totals
from tuimon.session.windows import Span

#: Seconds that the first markers may come later than two intervals: our choice, a busy machine's delay.
_MARKERS_WAIT_S = 2.0
_PHASES = ("data", "forward", "backward", "optimizer", "other")
_SURE: Mapping[str, int] = {}


class StepQueries(FocusedTables):
    """Queries about the steps of one process, by its pid."""

    # -- steps and phases

    def phases(self, pid: int) -> PhaseTable | None:
        """Phase breakdown of a process over the last 30 s; None before the first step.

        Without markers the shares are inferred from its main thread's stack samples.
        """
        stats, gpu = self._steps.get(pid), self._gpu_time.of(pid)
        if stats is None:
            return self._inferred(pid, self._process_samples.get(pid))
        return phase_table(pid, stats.recent(), self._between_shares(pid), gpu.shares(self.now_s) if gpu else None)

    def run_phases(self, pid: int) -> PhaseTable | None:
        """Like ``phases``, over the whole run without its warm-up."""
        stats, gpu, samples = self._steps.get(pid), self._gpu_time.of(pid), self.run_samples(pid)
        if stats is None:
            return self._inferred(pid, samples)
        split = samples.between_shares() if samples else None
        return phase_table(pid, stats.whole_run(), split, gpu.run_shares() if gpu else None)

    def steady_span(self, pid: int) -> Span:
        """What ``run_phases`` covers; of a process without steps of its own, that of the process in focus."""
        focus = self.trainer()
        stats = self._steps.get(pid) or (self._steps.get(focus) if focus is not None else None)
        return stats.steady_span() if stats is not None else Span()

    def run_samples(self, pid: int) -> ProcessSamples | None:
        """Like ``process_samples``, over the steady span."""
        sampled = self._process_samples.get(pid)
        return sampled.over(self.steady_span(pid)) if sampled is not None else None

    def before_and_since(self, pid: int, t: float) -> tuple[ProcessSamples, ProcessSamples] | None:
        """Like ``run_samples``, of the steady span up to a moment, and from then on; None without samples."""
        sampled, span = self._process_samples.get(pid), self.steady_span(pid)
        if sampled is None:
            return None
        return sampled.over(span._replace(end_s=t)), sampled.over(span._replace(begin_s=t))

    def both_ends(self, pid: int) -> tuple[ProcessSamples, ProcessSamples] | None:
        """Like ``run_samples``, of the first and the last quarter of the steady span; None without samples."""
        sampled, span = self._process_samples.get(pid), self.steady_span(pid)
        quarter_s = (span.end_s - span.begin_s) / 4
        if sampled is None or math.isinf(quarter_s):
            return None
        return (
            sampled.over(span._replace(end_s=span.begin_s + quarter_s)),
            sampled.over(span._replace(begin_s=span.end_s - quarter_s)),
        )

    def step_totals(self, pid: int) -> Totals:
        """Sums over the steps of the last 30 s; without markers empty."""
        stats = self._steps.get(pid)
        return stats.recent() if stats is not None else Totals()

    def steps(self, pid: int) -> StepSummary | None:
        """Step count, rate and times of a process over the last 30 s.

        Without markers: None, or only a rate estimated from the order of its stack samples (``estimated``).
        """
        stats = self._steps.get(pid)
        return stats.summary(stats.recent()) if stats else self._estimated_steps(pid)

    def run_steps(self, pid: int) -> StepSummary | None:
        """Like ``steps``, over the whole run without its warm-up; None without markers."""
        stats = self._steps.get(pid)
        return stats.summary(stats.whole_run()) if stats else None

    def step_history(self, pid: int) -> list[float | None]:
        """Mean step time in ms, one value a window, oldest first; None where no step ended."""
        stats = self._steps.get(pid)
        return stats.history.means_ms() if stats else []

    def work_history(self, pid: int) -> list[float | None]:
        """``step_history`` less what its threads waited for a core."""
        stats = self._steps.get(pid)
        return stats.history.work_ms() if stats else []

    def phase_history(self, pid: int, last: int) -> list[tuple[float, ...] | None]:
        """The ``last`` values of ``step_history``, each split into the parts of ``history.STACKED``."""
        stats = self._steps.get(pid)
        if stats is None:
            return []
        return stats.history.stacked_ms(stats.between_parts(self._between_shares(pid)), last)

    def marked_history(self, pid: int) -> list[tuple[float, ...] | None]:
        """``step_history`` as markers cut it: the parts of ``history.STACKED``, and the time between them."""
        stats = self._steps.get(pid)
        return stats.history.marked_ms() if stats else []

    def between_parts(self, pid: int) -> tuple[float, ...]:
        """How the time that markers cannot split is divided into the parts of ``history.STACKED``."""
        stats = self._steps.get(pid) or StepStats(pid)  # another process may have the pid of one that made steps
        return tuple(stats.between_parts(self._between_shares(pid)))

    def begin_of_window(self, pid: int, window: int) -> WindowBegin | None:
        """When a window of ``step_history`` began, and with which step; None where no step ended in it."""
        stats = self._steps.get(pid)
        return stats.history.begin_of(window) if stats else None

    def step_stats(self, pid: int) -> StepStats | None:
        """Everything folded from a process's steps (for rules)."""
        return self._steps.get(pid)

    def training_tid(self, pid: int) -> int:
        """The thread of a process that trains: the main one, unless markers or samples show another."""
        stats, sampled = self._steps.get(pid), self._process_samples.get(pid)
        if stats is not None and stats.latest is not None and stats.trains:
            return stats.latest.tid or pid
        return sampled.tid if sampled is not None else pid

    def _between_shares(self, pid: int) -> SplitShares | None:
        sampled = self._process_samples.get(pid)
        return sampled.between_shares() if sampled else None

    def _has_markers(self, pid: int) -> bool:
        process = self.process(pid)
        return process is not None and process.markers

    def _may_yet_have_markers(self, pid: int, sampled: ProcessSamples) -> bool:
        """True if markers of what samples show are still to come: the first take up to two intervals."""
        process, interval_s = self.process(pid), self.header.interval_s if self.header else 1.0
        if process is None or process.markers_reason != NO_TORCH_YET:
            return False
        return self.now_s - sampled.begin_s < 2 * interval_s + _MARKERS_WAIT_S

    def _inferred(self, pid: int, sampled: ProcessSamples | None) -> PhaseTable | None:
        """Phases from stack samples, where there are no markers to wait for."""
        if sampled is None or self._has_markers(pid) or not sampled.has_whole_step:
            return None
        if self._may_yet_have_markers(pid, sampled):
            return None
        return _inferred_phases(pid, sampled.phase_counts(), sampled.covered_s, sampled.unsure_counts())

    def _estimated_steps(self, pid: int) -> StepSummary | None:
        per_second = self._sampler.steps_per_second(pid, self.now_s)
        if per_second is None or self._has_markers(pid):
            return None
        return StepSummary(0, per_second, None, None, None, None, 0, estimated=True)


def _inferred_phases(
    pid: int, counts: Counter[str], window_s: float, unsure: Mapping[str, int] = _SURE
) -> PhaseTable | None:
    """Shares of the samples by phase, with their error; None while no sample shows training.

    ``window_s``: the time that they cover; ``unsure``: how many of those in the forward pass may be data, and of the
    others either of them.
    """
    total = counts.total()
    if not total or not (counts["backward"] or counts["optimizer"]):
        return None
    inside = total - counts["eval"]  # evaluation is no part of a step
    other = unsure.get("other", 0)
    may_be = {"data": unsure.get("forward", 0) + other, "forward": unsure.get("forward", 0) + other, "other": other}
    rows = [_row(name, counts[name], inside, may_be.get(name, 0)) for name in _PHASES]
    if counts["eval"]:
        rows.append(_row("eval", counts["eval"], total))
    return PhaseTable(pid, window_s, 0, True, tuple(rows))


def _row(name: str, count: int, total: int, unsure: int = 0) -> PhaseRow:
    """A share with half the width of its 95 % interval (normal approximation), at least one sample's share."""
    share = count / total
    error = max(1.96 * (share * (1 - share) / total) ** 0.5, 1.0 / total, unsure / total)
    return PhaseRow(name, share, None, estimated=True, error=error)
