"""What the Session tells views and rules: immutable rows. Ratios are 0..1 (CPU: 1.0 = one core), times carry units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tuimon.records import Place


class PhaseRow(NamedTuple):
    """One exclusive phase over the window. Over all rows but ``eval`` the shares add to 1."""

    name: str
    share: float  # of the steps' wall time; for "eval": of wall time, beside the steps
    ms_per_step: float | None  # None: shares inferred from samples, no step known
    estimated: bool = False  # rests on samples: shown with "~"
    error: float | None = None  # half width of the 95 % interval of ``share``, where estimated
    gpu_ms_per_step: float | None = None  # from the GPU's coming to its beginning to its coming to its end
    gpu_idle_ms_per_step: float | None = None  # of that: the GPU had nothing to do, for certain
    gpu_paced_ms_per_step: float | None = None  # of that: in stretches at whose end the GPU waited for the CPU


class RangeRow(NamedTuple):
    """One user range: ``path`` outermost first joined by "/", depth from 0."""

    path: str
    name: str
    depth: int
    phase: str
    per_step: float  # how many per step
    ms_per_step: float
    share: float


class PhaseTable(NamedTuple):
    """The phase breakdown of one process."""

    pid: int
    window_s: float  # how much time it covers
    steps: int  # how many steps it rests on; 0: inferred from frames, no steps known
    inferred: bool  # from stack samples alone, without markers
    rows: tuple[PhaseRow, ...]
    ranges: tuple[RangeRow, ...] = ()


class StepSummary(NamedTuple):
    """Steps of one process over the window; None where not measured."""

    total: int  # since the marker stream began
    per_second: float | None
    median_ms: float | None
    p95_ms: float | None
    open_phase: str | None  # what the trainer is in now
    open_for_s: float | None
    dropped: int  # markers lost
    estimated: bool = False  # ``per_second`` is told by samples (attached, no markers); nothing else is known


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """One OS thread, or a fold of like ones (``count`` > 1)."""

    pid: int
    tid: int
    role: str  # for people: "main", "worker 0", "pin-memory", "autograd", "intra-op"
    name: str
    cpu_ratio: float | None
    state: str
    delay_ratio: float | None
    place: Place | None  # innermost user line, from the latest samples
    count: int = 1
    ended: bool = False
    gil_ratio: float | None = None  # share of time it held the GIL, within a tenth; None until it was looked at enough


class GpuProcessRow(NamedTuple):
    """A process on a GPU."""

    pid: int
    memory_bytes: int | None
    sm_ratio: float | None
    ours: bool  # of the run


class TorchMemoryRow(NamedTuple):
    """torch's allocator on one device of a process."""

    device: int
    uuid: str | None  # where the process told which GPU that is
    allocated_bytes: int | None
    reserved_bytes: int | None
    retries: int | None  # since training was steady (the first 10 s with steps left out)


class LeadRow(NamedTuple):
    """How far launches run ahead of the GPU at one kind of boundary, in us; None where the clocks are not known."""

    boundary: str
    seen: int  # how many such boundaries
    min_us: float | None
    median_us: float | None
    max_us: float | None
    drained_ratio: float  # share of these boundaries at which the GPU had nothing left to do


class GpuTimeRow(NamedTuple):
    """A process's steps on the GPU's clock over the last 30 s."""

    device: int
    turns: int  # how many turns of the loop it rests on
    idle_ratio: float  # share of GPU time in which there was nothing to do, for certain
    paced_ratio: float  # share in stretches at whose end the GPU waited for the CPU: part of it is idle
    leads: tuple[LeadRow, ...]  # in the order of the loop
    lead_error_us: float | None
    history: tuple[float | None, ...]  # median lead of a window in us, at backward begin; oldest first


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU, its latest figures and the history of its utilisation (0..1, one a record, oldest first)."""

    index: int
    uuid: str
    name: str
    util_ratio: float | None
    util_history: tuple[float | None, ...]
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None
    sm_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    throttle: tuple[str, ...]
    stale_s: float  # age of these figures
    used_by_run: bool  # one of the run's processes has a context on it, or said so
    sm_ratio: float | None = None
    occupancy_ratio: float | None = None
    tensor_ratio: float | None = None
    dram_ratio: float | None = None
    sm_history: tuple[float | None, ...] = ()
    tensor_history: tuple[float | None, ...] = ()
    dram_history: tuple[float | None, ...] = ()
    memory_history: tuple[float | None, ...] = ()  # used, in bytes
    power_history: tuple[float | None, ...] = ()  # in watt
    power_instant_w: float | None = None
    memory_temperature_c: float | None = None
    throttled: tuple[tuple[str, float], ...] = ()  # (cause, share of the last 30 s), most first
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    joules_per_step: float | None = None  # of all GPUs that the process in focus uses, on the first of them
    ecc_errors: int | None = None
    xids: tuple[int, ...] = ()  # since the run began
    processes: tuple[GpuProcessRow, ...] = ()
    parent_uuid: str | None = None
    compute_capability: float | None = None
    cost_ms: float | None = None


class HotLine(NamedTuple):
    """A user line and its share of the samples asked about."""

    place: Place
    share: float  # 0..1
    samples: int
    total: int  # samples the share is of


class LoaderWorkerRow(NamedTuple):
    """One DataLoader worker over the last 30 s; times are means of a batch. None where not measured."""

    pid: int
    number: int
    busy_ratio: float | None  # share of time in items or collate
    batches_per_s: float | None
    items_ms: float | None
    collate_ms: float | None
    wait_ms: float | None  # for the trainer to ask for more
    hand_over_ms: float | None  # with nothing else to do; None: it is in wait_ms
    hot: HotLine | None  # its hottest line of the user's
    ended: bool = False


class LoaderRow(NamedTuple):
    """One DataLoader over the last 30 s in which it was used. None where not measured."""

    pid: int
    number: int
    role: str | None  # "train" or "eval": what its batches are used for
    dataset: str
    kind: str  # "map" or "iterable"
    workers: int  # 0: the training process makes the batches, and is the one row of worker_rows
    prefetch: int | None
    batch_size: int | None
    pin_memory: bool
    persistent: bool
    context: str | None  # "fork", "spawn", "forkserver"
    idle_s: float  # since it was last used
    fetches_per_s: float | None
    wait_ms: float | None  # mean of a fetch, as the trainer waits
    wait_p95_ms: float | None  # typical of a window
    waits_for_s: float | None  # a fetch was under way at the end of the latest window
    starts: int  # epochs that began with starting workers, or with telling them to begin anew
    start_s: float | None  # mean of an epoch: starting workers, until the first batch
    start_share: float | None  # of all the time that the run has waited for this loader
    ready_now: int | None  # batches that were ready at the latest fetch
    ready_mean: float | None
    ready_none_ratio: float | None  # share of fetches that found none ready
    ready_most: int | None  # workers x prefetch
    ready_history: tuple[float | None, ...]  # mean of a window, oldest first
    worker_rows: tuple[LoaderWorkerRow, ...]
