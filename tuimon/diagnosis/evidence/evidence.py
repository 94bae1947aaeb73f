"""The evidence on one training process at one moment, which rules judge."""

from __future__ import annotations

from functools import cached_property

from tuimon.diagnosis.evidence.course import CourseEvidence
from tuimon.diagnosis.evidence.data import DataEvidence
from tuimon.diagnosis.evidence.gpu import GpuEvidence, GpuSteps
from tuimon.diagnosis.evidence.lines import with_library
from tuimon.diagnosis.evidence.process import ProcessEvidence
from tuimon.diagnosis.evidence.ranks import (
    Exchange,
    StepCollective,
    chosen_ranks,
    exchanges,
    on_gpu_clock,
    step_collectives,
)
from tuimon.diagnosis.evidence.run import Machine, machines
from tuimon.diagnosis.evidence.standstill import StalledRanks, standstills
from tuimon.native_code import CodeKind, NativeUse
from tuimon.records import BETWEEN, DIVIDED, LineCalls, Place
from tuimon.session.ranks import RankRow, rank_rows, rows_of
from tuimon.session.session import ProcessView
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.samples import HotLine
from tuimon.session.tables import cached_query
from tuimon.threshold import MIN_SAMPLES, NEARLY_ALL

#: Activities in torch, and the kinds of libraries that run in these.
_TORCH_ACTIVITIES: tuple[Activity, ...] = ("torch", "sync", "transfer")
_TORCH_KINDS: tuple[CodeKind, ...] = ("torch", "math", "pool", "driver", "jit")


class Evidence(ProcessEvidence, frozen=True, dict=True):
    """The evidence on one process, from the session's figures for it and for the run around it.

    An attribute that is not defined here is of ``ProcessEvidence`` (threads and samples of the process, read as rules
    need them) or of the session's ``ProcessView`` (its figures over the span, such as ``phases``).

    A group reads the Session when a rule first uses it, and at most once: judging the workers of a healthy run, or the
    stacks of 16 ranks, would cost more than everything else. Rules get immutable values. All values are of one moment
    and one span, those of the view, which is the only way to the Session.
    """

    # -- groups

    @property
    def machines(self) -> tuple[Machine, ...]:
        """All machines of the run, the one in focus first."""
        return machines(self.view)

    @property
    def machine(self) -> Machine:
        """The machine in focus."""
        return self.machines[0]

    @property
    def cores(self) -> int:
        """Cores of that machine; 1 without a header."""
        return self.machine.cores if self.machine.cores is not None else 1

    @cached_property
    def course(self) -> CourseEvidence:
        """The course of its steps since the run began."""
        return CourseEvidence(self)

    @cached_property
    def data(self) -> DataEvidence:
        """The data that it trains on, and the makers of that data."""
        return DataEvidence(self)

    @cached_property
    def gpu(self) -> GpuEvidence:
        """The GPUs that it uses, and its use of them."""
        return GpuEvidence(self)

    # -- the process

    def native_in(self, *phases: str) -> NativeUse:
        """The code that its training and autograd threads ran in these phases, in Python and below; empty with few
        samples.

        Time that markers do not divide counts too, if nearly all of it belongs to these phases. The other phases' part
        in torch is subtracted from torch's libraries.
        """
        use, between = NativeUse.joined(row.native for row in self.computing), self.samples.where(phase=DIVIDED)
        found, ours = use.within(phases), between.where(phase=phases).total
        others = between.where(phase=tuple({*DIVIDED} - {*phases}), doing=_TORCH_ACTIVITIES).total
        if ours and ours >= NEARLY_ALL * (between.total - others):
            found.update(use.within((BETWEEN,)).without(*_TORCH_KINDS, part=others / between.total))
        return found if found.total() >= MIN_SAMPLES else NativeUse()

    def hottest_in(self, phase: str) -> HotLine | None:
        """The user's function with most samples of the training thread in a phase, including the functions it calls."""
        main = self.samples
        hot = main.without_imports.where(phase=phase).hottest()
        if phase == "data" and (made := self.data.item_maker(hot)) != hot:
            return made
        return with_library(main.where(phase=phase).with_callees(hot, main.training_path), main, phase)

    @property
    def of_run(self) -> ProcessView:
        """The process over the whole run."""
        return self.view.session.over("whole").of(self.pid)

    @cached_property
    def standstills(self) -> tuple[StalledRanks, ...]:
        """Signs of a hang: in the training of this process, then in every other training of several ranks."""
        return tuple(standstills(self.view, self.pid))

    # -- the ranks of the training in focus, as this one sees them; none in a training of one process

    @cached_property
    def ranks(self) -> tuple[RankRow, ...]:
        """All ranks, and how long each waits for the others.

        Measured on the GPUs' clocks if all ranks have times there: their CPUs do not wait in backward.
        """
        rows = tuple(rank_rows(self.view))
        if not rows and self.world_size > 1:  # the other ranks are not seen
            rows = tuple(rows_of([self]))
        if not rows or self.gpu.is_used is False:
            return rows
        return on_gpu_clock(rows, self.view)

    def of_rank(self, pid: int) -> Evidence | None:
        """The evidence of one rank; None if it does not train."""
        return evidence_of(self.view.of(pid)) if pid in self.view.session.trainers() else None

    @cached_property
    def compared(self) -> tuple[Evidence, ...]:
        """The ranks that are judged one by one, this one among them; a selection if there are many."""
        pids = chosen_ranks(self.pid, self.ranks)
        return tuple(evidence_of(self.view.of(pid)) for pid in self.view.session.trainers() if pid in pids)

    @cached_property
    def compared_gpus(self) -> dict[int, GpuSteps]:
        """The steps of ``compared`` ranks on their GPUs' clocks, by pid; only ranks with GPU times."""
        return {rank.pid: gpu for rank in self.compared if (gpu := rank.gpu.steps) is not None}

    @cached_property
    def exchanges(self) -> dict[int, Exchange]:
        """The time that these GPUs spend exchanging gradients."""
        return exchanges(self.compared_gpus, self.world_size)

    @cached_property
    def collectives(self) -> tuple[StepCollective, ...]:
        """The collectives of a step, from the first rank whose flight recorder was read; empty if none was."""
        counts, stats = self.view.session.collective_counts, self.stats
        known = next((counts[row.pid] for row in self.ranks if row.pid in counts), None)
        updates = stats.updates / stats.total if stats.updates and stats.total else 1.0
        return step_collectives(known, updates) if known is not None else ()

    def repeats(self, place: Place) -> LineCalls | None:
        """The call that reads or moves tensors most often at a line, if each step runs the line repeatedly."""
        counts = self.view.session.step_calls.get(self.pid)
        rows = [row for row in counts.lines if (row.file, row.line) == place[:2]] if counts is not None else []
        most = max(rows, key=lambda row: row.calls, default=None)
        return most if most is not None and most.calls > place.source.count(f".{most.name}(") else None

    @property
    def exchange(self) -> Exchange | None:
        """The time that its own GPU spends exchanging gradients; None if unknown, and in a training of one process."""
        return self.exchanges.get(self.pid) if self.world_size > 1 else None


@cached_query
def evidence_of(own: ProcessView) -> Evidence:
    """A process, and the run around it, over the view's span; computed once for all who ask."""
    return Evidence(own.pid, own.view)
