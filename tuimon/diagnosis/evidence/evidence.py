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
from tuimon.diagnosis.evidence.standstill import LastSeen, Standstill, last_seen, standstills
from tuimon.diagnosis.evidence.steps import StepEvidence, step_evidence
from tuimon.diagnosis.evidence.threads import ThreadEvidence
from tuimon.diagnosis.threshold import MIN_SAMPLES, NEARLY_ALL
from tuimon.records import BETWEEN, CompilerEvents, CompilerWork, Process
from tuimon.session.native import NativeUse, joined
from tuimon.session.ranks import RankRow, rank_rows, rows_of
from tuimon.session.session import SessionView, once
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.session.stacks.set_up import Checkpoints

T = TypeVar("T")
#: Phases between which a loop without a DataLoader has no marker.
DIVIDED = frozenset({"data", "forward", "other"})


class Evidence(Struct, frozen=True, dict=True):
    """One process, and the run around it; its members are groups, each of one noun.

    A group reads the Session when a rule first asks it something, and at most once: judging the workers of a healthy
    run, or the stacks of 16 ranks, would cost more than all the rest. Rules get immutable values. All are of one moment
    and one span: those of the view, the only way to the Session.
    """

    pid: int
    run: RunEvidence
    _view: SessionView

    @property
    def is_whole(self) -> bool:
        """True if it covers the whole run, not only what was last."""
        return self._view.is_whole

    def answer(self, query: Callable[[Evidence], T]) -> T:
        """What a query finds in it, worked out once for all who ask."""
        key = query, self.pid
        if key not in self._view.answers:
            self._view.answers[key] = query(self)
        return self._view.answers[key]  # type: ignore[no-any-return]  # of whatever query

    # -- groups

    @cached_property
    def steps(self) -> StepEvidence:
        """Its steps and their phases."""
        return step_evidence(self._view, self.pid)

    @cached_property
    def course(self) -> CourseEvidence:
        """How its steps have gone from the beginning of the run."""
        return CourseEvidence(self.pid, self._view)

    @cached_property
    def threads(self) -> ThreadEvidence:
        """Its threads, with the stack samples of each."""
        return ThreadEvidence(self.pid, self._view)

    @cached_property
    def data(self) -> DataEvidence:
        """Its data, and who makes it."""
        return DataEvidence(self.pid, self.threads, self._view)

    @cached_property
    def gpu(self) -> GpuEvidence:
        """The GPUs that it uses, and how."""
        return GpuEvidence(self.pid, self.process, self.run, self.steps, self.threads, self._view)

    @cached_property
    def ranks(self) -> RankEvidence:
        """The ranks of its training."""
        return RankEvidence(self.pid, self._view)

    # -- the process

    @cached_property
    def process(self) -> Process | None:
        """Its facts."""
        return self._view.process(self.pid)

    @property
    def world_size(self) -> int:
        """How many ranks its training has; 1 where that is not known."""
        return (self.process.world_size if self.process is not None else None) or 1

    @property
    def samples(self) -> Samples:
        """The stack samples of its training thread."""
        return self.threads.samples

    def native_in(self, *phases: str) -> NativeUse | None:
        """What its training thread, and autograd's, ran in these phases, in Python and below it; None if too little.

        Markers that divide no phase between an update and a backward show only those that take nearly all of it.
        """
        use = joined(row.native for row in self.threads.computing)
        between = self.steps.share_of(*DIVIDED.intersection(phases)) >= NEARLY_ALL * self.steps.share_of(*DIVIDED)
        found = use.within((*phases, BETWEEN) if between else phases) if use is not None else None
        return found if found is not None and found.samples >= MIN_SAMPLES else None

    def hottest_in(self, phase: str) -> HotLine | None:
        """The user's function with most samples of the training thread in a phase, with what it calls."""
        main = self.samples
        hot = main.without_imports.where(phase=phase).hottest()
        if phase == "data" and (made := made_at(hot, self.data.samples, self.data.loader)) != hot:
            return made
        return with_library(main.where(phase=phase).with_callees(hot, main.training_path), main, phase)

    @cached_property
    def checkpoints(self) -> Checkpoints | None:
        """What it has saved since its first steps; None where that is not read."""
        return self._view.session.checkpoints(self.pid)

    def compiler_events(self, *whats: CompilerWork, of_run: bool = False) -> list[CompilerEvents]:
        """Events of torch.compile over the span, the longest, or most frequent, first; or since the run began."""
        if not of_run:
            return self._view.compiler_events(self.pid, *whats)
        stats = self._view.session.compilers.get(self.pid)
        return stats.events(*whats) if stats is not None else []

    @cached_property
    def standstills(self) -> tuple[Standstill, ...]:
        """Signs of a hang: of its training, then of each other of several ranks."""
        return tuple(standstills(self._view, self.pid, self.run.trainers))

    @cached_property
    def last_seen(self) -> LastSeen:
        """Where it was at last, and for whom it waited."""
        return last_seen(self.pid, self._view)


class RankEvidence(Struct, frozen=True, dict=True):
    """The ranks of the training in focus, as one of them sees them; none where it has one process."""

    pid: int
    _view: SessionView

    @property
    def _own(self) -> Evidence:
        return evidence_of(self._view, self.pid)

    @cached_property
    def rows(self) -> tuple[RankRow, ...]:
        """All of them, with what each waits for the others.

        On the GPUs' clocks where all have times there: their CPUs do not wait in backward.
        """
        rows = tuple(rank_rows(self._view))
        if not rows and self._own.process is not None and self._own.world_size > 1:  # the others are not seen
            rows = tuple(rows_of(self._view, [self._own.process]))
        if not rows or self._own.gpu.is_used is False:
            return rows
        return on_gpu_clock(rows, {row.pid: self._view.gpu_time(row.pid) for row in rows})

    @cached_property
    def turns(self) -> Turns | None:
        """How they take turns being late; None with too few single steps that all of them have."""
        return late_turns(self.rows, self._view.shared_steps)

    def of(self, pid: int) -> Evidence | None:
        """The evidence of one of them."""
        return evidence_of(self._view, pid) if pid in self._own.run.trainers else None

    @cached_property
    def compared(self) -> tuple[Evidence, ...]:
        """Those that are judged one by one, this one among them: of many, a selection."""
        pids = chosen_ranks(self.pid, self.rows)
        return tuple(evidence_of(self._view, pid) for pid in self._own.run.trainers if pid in pids)

    @cached_property
    def exchanges(self) -> dict[int, Exchange]:
        """The time that GPUs of ``compared`` ranks spend on exchanging gradients, by pid; of those with GPU times."""
        return exchanges(self.gpus)

    @cached_property
    def gpus(self) -> dict[int, GpuSteps]:
        """The steps of ``compared`` ranks on their GPUs' clocks, by pid, where these have times."""
        known = ((rank.pid, rank.gpu.steps) for rank in self.compared)
        return {pid: gpu for pid, gpu in known if gpu is not None}


@once
def evidence_of(view: SessionView, pid: int) -> Evidence:
    """A process, and the run around it, over the view's span: for all who ask the same."""
    return Evidence(pid, run_evidence(view), view)
