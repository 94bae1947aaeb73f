"""The evidence on one training process at one moment, which rules judge."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from msgspec import Struct

from tuimon.diagnosis.evidence.course import CourseEvidence
from tuimon.diagnosis.evidence.data import DataEvidence, made_at
from tuimon.diagnosis.evidence.gpu import GpuEvidence
from tuimon.diagnosis.evidence.gpu_steps import GpuSteps
from tuimon.diagnosis.evidence.lines import with_library
from tuimon.diagnosis.evidence.ranks import Exchange, Turns, chosen_ranks, exchanges, late_turns, on_gpu_clock
from tuimon.diagnosis.evidence.run import RunEvidence, run_evidence
from tuimon.diagnosis.evidence.standstill import Standstill, standstills
from tuimon.diagnosis.evidence.threads import ProcessEvidence
from tuimon.diagnosis.threshold import MIN_SAMPLES, NEARLY_ALL
from tuimon.native_code import Kind
from tuimon.records import BETWEEN, DIVIDED, CompilerEvents, CompilerWork
from tuimon.session.native import NativeUse
from tuimon.session.ranks import RankRow, rank_rows, rows_of
from tuimon.session.session import SessionView, once
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.samples import HotLine

T = TypeVar("T")
#: Activities in torch, and the kinds of libraries that run meanwhile.
_IN_TORCH: tuple[Activity, ...] = ("torch", "sync", "transfer")
_OF_TORCH: tuple[Kind, ...] = ("torch", "math", "pool", "driver", "jit")


class Evidence(ProcessEvidence, frozen=True, dict=True):
    """One process, and what follows from the session's figures of it and of the run around it; the rest is in ``view``.

    A group reads the Session when a rule first uses it, and at most once: judging the workers of a healthy run, or the
    stacks of 16 ranks, would cost more than everything else. Rules get immutable values. All values are of one moment
    and one span, those of the view, which is the only way to the Session.
    """

    def answer(self, query: Callable[[Evidence], T]) -> T:
        """The result of a query, computed once for all who ask it."""
        key = query, self.pid
        if key not in self.view.answers:
            self.view.answers[key] = query(self)
        return self.view.answers[key]  # type: ignore[no-any-return]  # of whatever query

    # -- groups

    @property
    def run(self) -> RunEvidence:
        """The run around it."""
        return run_evidence(self.view)

    @cached_property
    def course(self) -> CourseEvidence:
        """The course of its steps since the run began."""
        return CourseEvidence(self.pid, self.view)

    @cached_property
    def data(self) -> DataEvidence:
        """The data that it trains on, and who makes it."""
        return DataEvidence(self)

    @cached_property
    def gpu(self) -> GpuEvidence:
        """The GPUs that it uses, and how it uses them."""
        return GpuEvidence(self, self.run)

    @cached_property
    def ranks(self) -> RankEvidence:
        """The ranks of its training."""
        return RankEvidence(self)

    # -- the process

    def native_in(self, *phases: str) -> NativeUse:
        """What its training and autograd threads ran in these phases, in Python and below it; empty with few samples.

        Markers may not divide the time from an update to a backward. Of that, other phases are left out as far as their
        samples are in torch, whose libraries ran then; the rest counts if nearly all of it is of these phases.
        """
        use, between = NativeUse.joined(row.native for row in self.computing), self.samples.where(phase=DIVIDED)
        found, ours = use.within(phases), between.where(phase=phases).total
        others = between.where(phase=tuple({*DIVIDED} - {*phases}), doing=_IN_TORCH).total
        if ours and ours >= NEARLY_ALL * (between.total - others):
            found.update(use.within((BETWEEN,)).without(*_OF_TORCH, part=others / between.total))
        return found if found.total() >= MIN_SAMPLES else NativeUse()

    def hottest_in(self, phase: str) -> HotLine | None:
        """The user's function with most samples of the training thread in a phase, including the functions it calls."""
        main = self.samples
        hot = main.without_imports.where(phase=phase).hottest()
        if phase == "data" and (made := made_at(hot, self.data.samples, self.data.loader)) != hot:
            return made
        return with_library(main.where(phase=phase).with_callees(hot, main.training_path), main, phase)

    def compiler_events(self, *whats: CompilerWork, of_run: bool = False) -> list[CompilerEvents]:
        """Events of torch.compile over the span (or the whole run), the longest or most frequent first."""
        if not of_run:
            return self.view.compiler_events(self.pid, *whats)
        stats = self.view.session.compilers.get(self.pid)
        return stats.events(*whats) if stats is not None else []

    @cached_property
    def standstills(self) -> tuple[Standstill, ...]:
        """Signs of a hang: in the training of this process, then in every other training of several ranks."""
        return tuple(standstills(self.view, self.pid))


class RankEvidence(Struct, frozen=True, dict=True):
    """The ranks of the training in focus, as one of them sees them; empty for a training of one process."""

    _own: Evidence

    @cached_property
    def rows(self) -> tuple[RankRow, ...]:
        """All ranks, with how long each waits for the others.

        Measured on the GPUs' clocks if all ranks have times there: their CPUs do not wait in backward.
        """
        rows = tuple(rank_rows(self._own.view))
        if not rows and self._own.process is not None and self._own.world_size > 1:  # the other ranks are not seen
            rows = tuple(rows_of(self._own.view, [self._own.process]))
        if not rows or self._own.gpu.is_used is False:
            return rows
        return on_gpu_clock(rows, {row.pid: self._own.view.gpu_time(row.pid) for row in rows})

    @cached_property
    def turns(self) -> Turns | None:
        """How the ranks take turns at being late; None if too few single steps are known of all ranks."""
        return late_turns(self.rows, self._own.view.shared_steps)

    def of(self, pid: int) -> Evidence | None:
        """The evidence of one rank."""
        return evidence_of(self._own.view, pid) if pid in self._own.run.trainers else None

    @cached_property
    def compared(self) -> tuple[Evidence, ...]:
        """The ranks that are judged one by one, this one among them; a selection if there are many."""
        pids, view = chosen_ranks(self._own.pid, self.rows), self._own.view
        return tuple(evidence_of(view, pid) for pid in self._own.run.trainers if pid in pids)

    @cached_property
    def exchanges(self) -> dict[int, Exchange]:
        """The time that GPUs of ``compared`` ranks spend exchanging gradients, by pid; only ranks with GPU times."""
        return exchanges(self.gpus)

    @cached_property
    def gpus(self) -> dict[int, GpuSteps]:
        """The steps of ``compared`` ranks on their GPUs' clocks, by pid; only ranks with GPU times."""
        known = ((rank.pid, rank.gpu.steps) for rank in self.compared)
        return {pid: gpu for pid, gpu in known if gpu is not None}


@once
def evidence_of(view: SessionView, pid: int) -> Evidence:
    """A process, and the run around it, over the view's span; computed once for all who ask."""
    return Evidence(pid, view)
