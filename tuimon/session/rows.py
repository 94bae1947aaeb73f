"""The rows a Session returns, immutable. Ratios are 0..1 (CPU: 1.0 = one core), times carry units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, structs

from tuimon.records import (
    Gpu,
    GpuAccumulation,
    GpuExchange,
    GpuProcess,
    Loader,
    LoaderFacts,
    MeasuredBatches,
    Place,
)
from tuimon.session.series import sampling_error

_RATIOS = ("util_ratio", "sm_ratio", "occupancy_ratio", "tensor_ratio", "dram_ratio")
_RATES = ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s")
#: The fields of ``Gpu`` that have a mean.
COUNTERS = (*_RATIOS, *_RATES, "power_w", "sm_clock_mhz")


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


class PhaseRow(NamedTuple):
    """One exclusive phase over the window. Over all rows but ``eval`` the shares add to 1."""

    name: str
    share: float  # of the steps' wall time; for "eval": of the loop's time, beside the steps
    ms_per_step: float | None  # None: shares inferred from samples, no step known
    estimated: bool = False  # rests on samples: shown with "~"
    error: float | None = None  # half width of the 95 % interval of ``share``, where estimated
    gpu_ms_per_step: float | None = None  # from when the GPU reaches its beginning to when it reaches its end
    gpu_idle_ms_per_step: float | None = None  # of that: the GPU certainly had nothing to do
    gpu_maybe_idle_ms_per_step: float | None = None  # of that: may be idle as well


class RangeRow(Struct, frozen=True, gc=False):
    """One user range: ``path`` outermost first joined by "/", depth from 0."""

    path: str
    name: str
    depth: int
    phase: str
    per_step: float  # uses of it per step
    ms_per_step: float
    share: float


class PhaseTable(NamedTuple):
    """The phase breakdown of one process."""

    pid: int
    window_s: float  # time that it covers
    steps: int  # number of steps that it covers; 0: inferred from stack samples
    inferred: bool  # from stack samples alone, without markers
    rows: tuple[PhaseRow, ...]
    ranges: tuple[RangeRow, ...] = ()

    @property
    def trains(self) -> bool:
        """True if a batch, a forward or backward pass or an update was seen in its steps."""
        return any(row.share for row in self.rows if row.name not in ("other", "eval"))

    @property
    def updates(self) -> bool:
        """True if a backward pass or an update was seen in its steps; inference has none."""
        return any(row.share for row in self.rows if row.name in ("backward", "optimizer"))


class StepSummary(Struct, frozen=True, gc=False):
    """Steps of one process over the window; None where not measured."""

    total: int  # since the marker stream began
    per_second: float | None
    median_ms: float | None
    p95_ms: float | None
    open_phase: str | None  # phase the trainer is in
    open_for_s: float | None
    dropped: int  # markers lost
    timed_ratio: float = 1.0  # of the steps; the others were only counted
    estimated: bool = False  # ``per_second`` is estimated from stack samples (no markers); the rest is unknown


class ThreadRow(Struct, frozen=True):
    """One OS thread, or several of one kind (``count`` > 1)."""

    pid: int
    tid: int
    role: (
        str  # for the user: "main", or "training" off the main thread, "worker 0", "pin-memory", "autograd", "intra-op"
    )
    name: str
    cpu_ratio: float | None
    state: str
    delay_ratio: float | None
    place: Place | None  # innermost user line, from the latest samples
    count: int = 1
    ended: bool = False
    gil_ratio: float | None = None  # share of time it held the GIL, within a tenth; None with too few samples
    rank: int | None = None  # of its process, in a training of several

    @property
    def kind(self) -> str:
        """The role without its number: ``worker``."""
        return role_kind(self.role)


def role_kind(role: str) -> str:
    """A role without what tells one of its kind from another: ``eval worker 2`` is a ``worker``."""
    kind = role.rstrip("0123456789").rstrip()
    return "worker" if kind != role and kind.endswith("worker") else kind


class Growth(Struct, frozen=True, gc=False):
    """How much a memory holds now, and how fast that has grown."""

    held_bytes: int
    risen_bytes: int
    bytes_per_s: float


class TorchMemoryRow(Struct, frozen=True, gc=False):
    """torch's allocator on one device of a process."""

    device: int
    uuid: str | None  # None where the process does not report which GPU that is
    allocated_bytes: int | None
    reserved_bytes: int | None
    retries: int | None  # since 10 s after the first step
    frees_per_s: float | None = None  # calls of cudaFree and its like, in the same time
    pinned_bytes: int | None = None  # of the host's memory, the most in the whole run
    peak_bytes: int | None = None  # most in tensors at a time, in the whole run
    growth: Growth | None = None  # of what is in tensors, if that has grown ever since the first steps


class LeadRow(Struct, frozen=True, gc=False):
    """How far launches run ahead of the GPU at one kind of boundary, in us; None where the clocks are not known."""

    boundary: str
    seen: int  # number of such boundaries
    min_us: float | None
    median_us: float | None
    max_us: float | None
    stream_idle_ratio: float  # share of these boundaries at which the stream was idle
    mean_us: float | None = None  # what adds up over steps
    at_least_us: float | None = None  # a bound that holds at each of them, also where the times are None


class GpuShare(NamedTuple):
    """A phase's shares of the GPU's time in steps."""

    span: float
    idle: float
    maybe_idle: float


class GpuTimeRow(NamedTuple):
    """A process's steps on the GPU's clock."""

    device: int
    steps: int  # how many were timed
    idle_ratio: float  # share of GPU time in which it certainly had nothing to do
    maybe_idle_ratio: float  # share that may be idle as well
    leads: tuple[LeadRow, ...]  # in the order of the loop
    lead_error_us: float | None
    timed_s: float = 0.0  # how long these steps were, together
    bounded: bool = True  # False in old logs: see ``records.GpuTime``
    exchanges: tuple[GpuExchange, ...] = ()  # of one of several ranks
    accumulation: GpuAccumulation | None = None  # sums, of one of several ranks
    phases: Mapping[str, GpuShare] = {}

    def of(self, name: str) -> GpuShare | None:
        """A phase's shares; None when nothing was timed, and for evaluation, which is beside the steps."""
        return self.phases.get(name, GpuShare(0.0, 0.0, 0.0)) if self.timed_s and name != "eval" else None


class GpuRow(Struct, frozen=True):
    """One GPU or MIG instance: its latest record, and what only many records show."""

    latest: Gpu
    stale_s: float  # age of ``latest``
    used_by_run: bool  # a process of the run has a context on it, or reports to use it
    run_pids: frozenset[int] = frozenset()  # which of ``latest.processes`` belong to the run
    # By the field of ``Gpu``, oldest first: those of the latest records; over the whole run means of equal stretches.
    course: Mapping[str, tuple[float | None, ...]] = {}
    throttled: tuple[tuple[str, float], ...] = ()  # (cause, share of the last 30 s), most first
    joules_per_step: float | None = None  # of all GPUs that the process in focus uses, on the first of them
    xids: tuple[int, ...] = ()  # since the run began
    means: GpuMeans | None = None  # over the steps that the phases cover; without steps, over the last 30 s

    def history(self, counter: str) -> tuple[float | None, ...]:
        """The course of a field of ``Gpu``."""
        return self.course.get(counter, ())

    @property
    def figures(self) -> GpuMeans:
        """The figure beside a counter's name wherever people read it: its mean; the latest where there is none yet."""
        means = self.means or GpuMeans()
        missing = {name: getattr(self.latest, name) for name in COUNTERS if getattr(means, name) is None}
        return structs.replace(means, **missing)

    @property
    def others(self) -> list[GpuProcess]:
        """The processes on it that do not belong to the run."""
        return [process for process in self.latest.processes if process.pid not in self.run_pids]


class HotLine(NamedTuple):
    """A user line, or a function at its hottest line, and its share of some samples."""

    place: Place
    share: float  # 0..1
    samples: int  # 0: its share was measured by markers
    total: int  # of how many samples
    library: Place | None = None  # what it is in, where a library that the line calls owns the loop
    maker: Place | None = None  # the library's own line that the DataLoader calls, which leads there

    @property
    def function(self) -> tuple[str, str]:
        """The function, by file and name."""
        return self.place.file, self.place.function

    @property
    def error(self) -> float:
        """How far off its share may be."""
        return sampling_error(self.share, self.samples / self.share) if self.share and self.samples else 0.0


class LoaderWorkerRow(Struct, frozen=True, gc=False):
    """One DataLoader worker over the last 30 s; times are means of a batch. None where not measured."""

    pid: int
    name: str
    busy_ratio: float | None  # share of time in items or collate
    batches_per_s: float | None
    items_ms: float | None
    collate_ms: float | None
    wait_ms: float | None  # for the trainer to request a batch
    hand_over_ms: float | None  # for its batch to be written to the pipe; None: part of wait_ms
    ended: bool = False
    cpu_ratio: float | None = None  # of one core; where a view adds it
    hot: HotLine | None = None  # its hottest user line; the same


class EpochRow(NamedTuple):
    """How far a loader has come in its epochs; None where unknown."""

    done: int | None  # epochs that have ended
    given: int | None  # batches of the one under way
    length: int | None  # batches of an epoch


class LoaderRow(NamedTuple):
    """One DataLoader over the last 30 s in which it was used. None where not measured."""

    latest: Loader
    facts: LoaderFacts  # with 0 workers the training process makes the batches, and is the one row of worker_rows
    idle_s: float  # since it was last used
    fetches_per_s: float | None
    wait_ms: float | None  # mean of a fetch, as the trainer waits
    wait_p95_ms: float | None  # typical of a window
    starts: int  # epochs of the run that began with starting workers, or with resetting persistent ones
    start_s: float | None  # mean of an epoch: starting workers, until the first batch
    end_s: float | None  # mean of an epoch: ending workers
    start_share: float | None  # both, of all the time that the run has waited for this loader
    ready_mean: float | None
    ready_none_ratio: float | None  # share of fetches that found none ready
    ready_history: tuple[float | None, ...]  # mean of a window, oldest first
    worker_rows: tuple[LoaderWorkerRow, ...]
    batches: MeasuredBatches | None = None  # those of the whole run that were measured
    epoch: EpochRow | None = None  # None: nothing was seen of its epochs
    fetches: int = 0  # of the whole run
    first_end_s: float | None = None  # when its first epoch ended
    held_ms: float | None = None  # mean of a fetch: for the next batch in order, while later ones came
    late_ms: float | None = None  # by how much a typical one of those is late: that of most of the lost time

    @property
    def ready_most(self) -> int | None:
        """How many batches can be ready at once; None where the training process makes them."""
        return self.facts.workers * self.facts.prefetch if self.facts.workers and self.facts.prefetch else None
