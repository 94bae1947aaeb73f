"""The evidence on one training process at one moment, which rules judge."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from msgspec import Struct

from tuimon.diagnosis.evidence.batches import ReadAgain, evaluation_loader, made_at, read_again, training_loader
from tuimon.diagnosis.evidence.cores import TrainingThread, training_thread
from tuimon.diagnosis.evidence.course import Course
from tuimon.diagnosis.evidence.devices import process_gpus, runs_nothing, uses_gpu
from tuimon.diagnosis.evidence.gpu.exchange import Exchange, exchanges, on_gpu_clock
from tuimon.diagnosis.evidence.gpu.samples import (
    Launching,
    copying_upper_bound,
    gpu_waits,
    launching,
)
from tuimon.diagnosis.evidence.gpu.steps import GPU_CLOCK_WAIT_S, GpuSteps, gpu_steps
from tuimon.diagnosis.evidence.late_ranks import Turns, chosen_ranks, late_turns
from tuimon.diagnosis.evidence.lines import with_library
from tuimon.diagnosis.evidence.rollout import Rollout, hottest_beside, rollout_shares
from tuimon.diagnosis.evidence.run import RunEvidence, run_evidence
from tuimon.diagnosis.evidence.standstill import Standstill, last_places, standstills
from tuimon.diagnosis.evidence.steps import (
    FIRST_STEPS,
    LongestSteps,
    StepEvidence,
    longest_steps,
    mean_step_ms,
    phase_row,
    step_evidence,
)
from tuimon.diagnosis.evidence.threads import Contention, Pool, contention, pool
from tuimon.diagnosis.evidence.workers import (
    EpochStarts,
    Senders,
    Workers,
    epoch_starts,
    sender_evidence,
    worker_evidence,
)
from tuimon.diagnosis.interval import Interval
from tuimon.node_ids import node_of
from tuimon.records import CompilerEvents, CompilerWork, Place, Process, Threads, TraceTaken
from tuimon.session.beside_steps import Checkpoints
from tuimon.session.progress import rates_in
from tuimon.session.ranks import RankRow, rank_rows
from tuimon.session.rows import GpuRow, GpuTimeRow, HotLine, LoaderRow, PhaseRow, PhaseTable, ThreadRow, TorchMemoryRow
from tuimon.session.sampling import GilHeld
from tuimon.session.series import WINDOW_S, Span
from tuimon.session.session import SessionView, once
from tuimon.session.stacks.samples import NO_SAMPLES, Samples

T = TypeVar("T")


class Evidence(Struct, frozen=True, dict=True):
    """One process, and the run around it.

    Each section is read from the Session when the first rule needs it, and at most once: judging the workers of a
    healthy run, or the stacks of 16 ranks, would cost more than all the rest. Rules get immutable values. All
    sections are of one moment and one span: those of the view, the only way to the Session.
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

    # -- steps

    @cached_property
    def process(self) -> Process | None:
        """Its facts."""
        return self._view.process(self.pid)

    @property
    def world_size(self) -> int:
        """How many ranks its training has; 1 where that is not known."""
        return (self.process.world_size if self.process is not None else None) or 1

    @cached_property
    def steps(self) -> StepEvidence | None:
        """Its steps; None without markers."""
        stats = self._view.session.step_stats.get(self.pid)
        return step_evidence(stats, self._view.step_totals(self.pid)) if stats is not None else None

    def longest_steps(self, ms_per_step: float) -> LongestSteps | None:
        """The few steps that hold most of a time that averages this; None where it is spread over more."""
        return longest_steps(self._view.step_totals(self.pid), ms_per_step)

    @cached_property
    def checkpoints(self) -> Checkpoints | None:
        """What it has saved since its first steps; None where that is not read."""
        return self._view.session.checkpoints(self.pid)

    @cached_property
    def has_steps(self) -> bool:
        """True if a whole step has ended, as markers or samples show."""
        return self.steps.total > 0 if self.steps is not None else self.phases is not None

    @cached_property
    def phases(self) -> PhaseTable | None:
        """Its phases over the last 30 s; None before the first step."""
        return self._view.phases(self.pid)

    def phase(self, name: str) -> PhaseRow | None:
        """One of its phases."""
        return phase_row(self.phases, name)

    def share_of(self, *names: str) -> float:
        """The share of the step in some of its phases."""
        return sum(row.share for name in names if (row := self.phase(name)) is not None)

    @property
    def step_ms(self) -> float | None:
        """Its mean step in ms; None where that is not known."""
        return mean_step_ms(self.phases) if self.phases is not None else None

    @property
    def in_steps(self) -> float:
        """The part (0..1) of the time that goes to steps, and not to evaluation."""
        evaluation = self.phase("eval")
        return 1.0 - (evaluation.share if evaluation is not None else 0.0)

    @cached_property
    def course(self) -> Course:
        """How its steps have gone from the beginning of the run."""
        return Course(self.pid, self._view)

    @cached_property
    def standstills(self) -> tuple[Standstill, ...]:
        """Signs of a hang: of its training, then of each other of several ranks."""
        return tuple(standstills(self, self.ranks, self._view.session))

    @cached_property
    def last_places(self) -> dict[int, Place]:
        """The lines that its training thread and its DataLoader workers were at last, by process."""
        return last_places(self.pid, self._view.session)

    @cached_property
    def is_sampled(self) -> bool:
        """True if there have been stack samples of it in the run."""
        sampled = self._view.session.stacks.get(self.pid)
        return sampled is not None and sampled.latest_s is not None

    @cached_property
    def samples(self) -> Samples:
        """The stack samples of its training thread."""
        return self._view.samples(self.pid, self.training_tid)

    @cached_property
    def data_samples(self) -> Samples:
        """Those of the data phase."""
        return self.samples.where(phase="data")

    @cached_property
    def other_threads(self) -> dict[int, Samples]:
        """Those of its other Python threads, by thread id."""
        return {
            tid: self._view.samples(self.pid, tid)
            for tid in self._view.sampled_tids(self.pid)
            if tid != self.training_tid
        }

    @cached_property
    def samples_since_first_step(self) -> Samples:
        """Those of the training thread after the first steps of the run, as markers or samples show them."""
        sampled = self._view.session.stacks.get(self.pid)
        shown_s = sampled.begin_s if sampled is not None else None
        begun_s = self.steps.first_step_s if self.steps is not None else shown_s
        if sampled is None or begun_s is None:
            return NO_SAMPLES
        return sampled.over(Span(begun_s), self.training_tid)

    @cached_property
    def rollout(self) -> Rollout | None:
        """The rollout that makes the data, if the training makes it by an environment or its model; else None."""
        return rollout_shares(self.samples)

    @cached_property
    def beside_rollout(self) -> HotLine | None:
        """The function that makes data beside a rollout: it takes from a buffer, or computes returns."""
        return hottest_beside(self.samples)

    def hottest_in(self, phase: str) -> HotLine | None:
        """The user's function with most samples of the training thread in a phase, with what it calls."""
        main = self.samples
        hot = main.without_imports.where(phase=phase).hottest()
        if phase == "data" and (made := made_at(hot, main.where(phase=phase), self.loader)) != hot:
            return made
        return with_library(main.where(phase=phase).with_callees(hot, main.training_path), main, phase)

    # -- threads, loaders and workers

    @cached_property
    def threads(self) -> Threads | None:
        """CPU figures of its threads."""
        return self._view.process_threads(self.pid)

    @cached_property
    def training_thread(self) -> TrainingThread:
        """CPU and run-queue delay of the thread that trains."""
        return training_thread(self.threads, self.training_tid)

    @cached_property
    def training_thread_of_run(self) -> TrainingThread:
        """The same over all of its steps: one window differs from the next."""
        main = self._view.session.over("whole").training_thread(self.pid)
        return TrainingThread(main.cpu_ratio, main.delay_ratio)

    @cached_property
    def training_tid(self) -> int:
        """The thread that trains: the main one, unless markers or samples show another."""
        return self._view.session.training_tid(self.pid)

    @cached_property
    def thread_rows(self) -> tuple[ThreadRow, ...]:
        """Its threads with their roles."""
        return tuple(self._view.threads_of(self.pid))

    @cached_property
    def launches_at_most(self) -> float:
        """The share of the time (0..1) that launches may take: CPU time of the training thread and autograd's."""
        ratios = [row.cpu_ratio for row in self.thread_rows if row.role == "autograd" or row.tid == self.training_tid]
        known = [ratio for ratio in ratios if ratio is not None]
        return min(1.0, sum(known)) if known and len(known) == len(ratios) else 1.0

    def gil_held_in(self, place: Place) -> GilHeld | None:
        """How often the training thread holds the GIL in the function of a place; None if unknown."""
        return self._view.session.gil.held_in(self.pid, self.training_tid, place)

    @cached_property
    def gil_contention(self) -> Contention | None:
        """The time that its training thread loses to another thread with the GIL; None if none, or if unknown."""
        return contention(self.training_tid, self.thread_rows, self.samples, self.other_threads)

    @cached_property
    def loader(self) -> LoaderRow | None:
        """The DataLoader whose batches train; None without, or without markers."""
        return training_loader(self._view.loaders(self.pid))

    @property
    def samples_per_s(self) -> float | None:
        """Samples that it trains on in a second."""
        return rates_in(self._view, self.pid).samples

    @cached_property
    def evaluation_loader(self) -> LoaderRow | None:
        """The one DataLoader whose batches are evaluated; None without, or without markers."""
        return evaluation_loader(self._view.loaders(self.pid))

    @cached_property
    def read_again(self) -> ReadAgain | None:
        """The data that every epoch reads from the disk anew; None where that is not known."""
        stats = self._view.session.disk_reads.get(self.pid)
        return read_again(stats.epochs() if stats is not None else None, self.loader)

    @cached_property
    def child_workers(self) -> tuple[Process, ...]:
        """Its live DataLoader workers, by descent."""
        return tuple(self._view.workers(self.pid))

    @cached_property
    def workers(self) -> Workers:
        """Its DataLoader workers."""
        return worker_evidence(self._view, self.pid, self.loader)

    @cached_property
    def worker_samples(self) -> Samples:
        """The stack samples of its DataLoader workers."""
        workers = {worker.pid for worker in (*self.child_workers, *self._view.recent_workers(self.pid))}
        return Samples.joined(self._view.samples(pid) for pid in sorted(workers))

    @cached_property
    def senders(self) -> Senders:
        """The processes that may send it data by messages, such as those of environments."""
        return sender_evidence(self._view, self.pid)

    @cached_property
    def pool(self) -> Pool | None:
        """Its threads that make the items; None where the training thread, or a worker, makes them."""
        return None if self.workers.number else pool(self.samples, self.other_threads, self.threads)

    @cached_property
    def epoch_starts(self) -> EpochStarts | None:
        """The time that starting its workers anew for each epoch takes; None if they stay."""
        return epoch_starts(self.loader, self.workers, self.data_samples)

    # -- torch.compile

    def compiler_events(self, *whats: CompilerWork) -> list[CompilerEvents]:
        """Events of torch.compile over the span, as it notes them: the longest, or the most frequent, first."""
        return self._view.compiler_events(self.pid, *whats)

    def compiler_events_of_run(self, *whats: CompilerWork) -> list[CompilerEvents]:
        """The same since the run began: a broken graph stays broken."""
        stats = self._view.session.compilers.get(self.pid)
        return stats.events(*whats) if stats is not None else []

    # -- GPU

    @cached_property
    def gpus(self) -> tuple[GpuRow, ...]:
        """The GPUs that it uses; all of the run where it has not reported which."""
        return process_gpus(self.run.gpus_used_on(node_of(self.pid)), self.process)

    @cached_property
    def uses_gpu(self) -> bool | None:
        """True if it computes on a GPU; None where that is unknown."""
        if self.has_stepped and self.gpus and all(runs_nothing(gpu) for gpu in self.gpus):
            return False  # it holds them, or was given them
        return uses_gpu(self.process, self.run.gpus, self.run.notices)

    @property
    def has_stepped(self) -> bool:
        """True if it has made steps for so long that a GPU without a kernel since then does nothing."""
        if self.phases is None or not self.phases.trains:
            return False
        if self.steps is None:  # attached without markers: the readings of the GPU are all that there is
            return True
        return self.steps.first_step_s is not None and self.run.now_s - self.steps.first_step_s >= WINDOW_S

    @cached_property
    def gpu_time(self) -> GpuTimeRow | None:
        """GPU times of the last 30 s; None where none were measured."""
        return self._view.gpu_time(self.pid)

    @cached_property
    def trace(self) -> TraceTaken | None:
        """Its latest trace; None where none was taken."""
        return next((each for each in reversed(self._view.session.traces) if each.pid == self.pid), None)

    @cached_property
    def gpu_waits(self) -> Samples | None:
        """The samples in which the training thread waits for a value of its GPU; None with too few in steps."""
        return gpu_waits(self.samples, self.trace)

    @cached_property
    def gpu_steps(self) -> GpuSteps | None:
        """Its steps on the GPU's clock; None with too few GPU times."""
        if self.gpu_time is None:  # then nothing of the rest is worked out: comm_bound queries 64 ranks on CPUs
            return None
        copying = copying_upper_bound(self.samples, self.torch_memory)
        waits = self.gpu_waits
        return gpu_steps(self.gpu_time, self.phases, self.samples, waits, self.gpus, self.world_size, copying)

    @cached_property
    def launching(self) -> Launching:
        """How it queues its work for the GPU, as samples show."""
        return launching(self.samples)

    def gpu_idle_during(self, phase: PhaseRow) -> Interval | None:
        """How much of a phase the GPU idles; None without GPU times."""
        return self.gpu_steps.idle_during(phase) if self.gpu_steps is not None else None

    @cached_property
    def awaits_gpu_times(self) -> bool:
        """True if GPU times are still to come: until then, what the CPU waits for may be a GPU at work."""
        return self._has_just_begun and self.uses_gpu is True and self.gpu_steps is None

    @property
    def awaits_idle_causes(self) -> bool:
        """True if what tells one reason for an idle GPU from another is still to come: samples, and NVML's figures."""
        unread = any(row.means is None or row.means.util_ratio is None for row in self.gpus)
        return self._has_just_begun and (self.gpu_waits is None or unread)

    @property
    def _has_just_begun(self) -> bool:
        """True if so few seconds and steps have passed since the first step that not everything has been measured."""
        if self.process is None or not self.process.markers or self.steps is None or self.steps.first_step_s is None:
            return False
        # a long step is timed whole, at the next its times are polled, and a burst may begin late
        longest_s = max(GPU_CLOCK_WAIT_S, FIRST_STEPS * (self.steps.median_ms or 0.0) / 1e3)
        return self.run.now_s - self.steps.first_step_s <= longest_s

    @cached_property
    def torch_memory(self) -> tuple[TorchMemoryRow, ...]:
        """The memory that torch's allocator holds, by device."""
        return tuple(self._view.session.torch_memory(self.pid))

    # -- ranks

    @cached_property
    def rank_rows(self) -> tuple[RankRow, ...]:
        """The ranks of the training in focus, with what each waits for the others; none where it has one process.

        On the GPUs' clocks where all have times there: their CPUs do not wait in backward.
        """
        rows = tuple(rank_rows(self._view))
        if not rows or self.uses_gpu is False:
            return rows
        return on_gpu_clock(rows, {row.pid: self._view.gpu_time(row.pid) for row in rows})

    @cached_property
    def turns(self) -> Turns | None:
        """How its ranks take turns being late; None with too few single steps that all of them have."""
        return late_turns(self.rank_rows, self._view.shared_steps)

    def waits_for_ranks(self, phase: str) -> float:
        """Share (0..1) of the step that it waits for other ranks in a phase; 0 where that is unknown."""
        own = next((row for row in self.rank_rows if row.pid == self.pid), None)
        return dict(own.waits).get(phase, 0.0) if own is not None else 0.0

    def of_rank(self, pid: int) -> Evidence | None:
        """The evidence of one of them."""
        return next((rank for rank in self.ranks if rank.pid == pid), None)

    @property
    def ranks(self) -> tuple[Evidence, ...]:
        """The evidence of every training process of the run, by rank; this one among them."""
        return tuple(evidence_of(self._view, pid) for pid in self.run.trainers)

    @cached_property
    def compared(self) -> tuple[Evidence, ...]:
        """The ranks of its training that are judged one by one, this one among them: of many, a selection."""
        pids = chosen_ranks(self.pid, self.rank_rows)
        return tuple(rank for rank in self.ranks if rank.pid in pids)

    @cached_property
    def exchanges(self) -> dict[int, Exchange]:
        """The time that GPUs of ``compared`` ranks spend on exchanging gradients, by pid; of those with GPU times."""
        known = ((rank.pid, rank.gpu_steps) for rank in self.compared)
        return exchanges({pid: gpu for pid, gpu in known if gpu is not None})


@once
def evidence_of(view: SessionView, pid: int) -> Evidence:
    """A process, and the run around it, over the view's span: for all who ask the same."""
    return Evidence(pid, run_evidence(view), view)
