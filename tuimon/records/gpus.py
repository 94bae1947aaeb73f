"""Records about GPUs: the driver's counters, and steps on the GPU's clock."""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import lru_cache
from typing import Annotated, Literal

import msgspec

from tuimon.records.base import BOUNDED, Amount, Count, Index, Moment, Pid, Positive, Record, Signed, Window


class GpuProcess(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A process on a GPU: ``[pid, memory_bytes, sm_ratio]``; pid 0 if the driver's pid is not valid here."""

    pid: Pid
    memory_bytes: Count | None = None
    sm_ratio: Amount | None = None


class Throttle(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A cause that lowered the clocks: ``[cause, ratio]``; ``ratio`` of the window, None if it was only seen once."""

    cause: str
    ratio: Amount | None = None


#: Faulty rows of a GPU's memory: there are none; the next reset replaces them; or they cannot be replaced, as no spare
#: rows are left.
RowRemap = Literal["none", "pending", "failed"]


#: If a process uses more GPUs than this, each of their records covers several windows, so that the log stays small.
GPUS_A_WINDOW = 2


class Gpu(Record, frozen=True, kw_only=True, tag="gpu"):
    """Counters of one GPU, or of one MIG instance (NVML, amdsmi); None if the GPU lacks a counter.

    Facts that seldom change (total memory, limits of power and clock, PCIe link, capability, parent) are in the first
    record of a log file, and again in each record in which they have changed.
    """

    index: Index  # in PCI order; a MIG instance has that of its GPU
    uuid: str
    name: str
    util_ratio: Amount | None = None  # share of time in which a kernel ran; for a MIG instance by GPM
    util_samples: list[Amount] = msgspec.field(default_factory=list)  # as the driver buffered them, oldest first
    sm_ratio: Amount | None = None  # GPM: share of the multiprocessors that were busy, mean over the window
    occupancy_ratio: Amount | None = None  # GPM: resident warps / the most possible
    tensor_ratio: Amount | None = None  # GPM: share of time in which the tensor pipes were busy
    dram_ratio: Amount | None = None  # GPM: memory bandwidth in use / the most possible
    memory_used_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    power_w: Amount | None = None  # mean of the last second if the driver reports it, else at ``t``
    power_limit_w: Amount | None = None
    power_limit_default_w: Amount | None = None
    energy_j: Amount | None = None  # since the driver was loaded
    temperature_c: Signed | None = None
    memory_temperature_c: Signed | None = None
    sm_clock_mhz: Count | None = None
    sm_clock_max_mhz: Count | None = None
    throttle: list[str] = msgspec.field(default_factory=list)  # causes that lower the clocks at ``t``
    throttled: list[Throttle] = msgspec.field(default_factory=list)  # causes that lowered them in the window
    pcie_rx_bytes_per_s: Amount | None = None  # to the GPU
    pcie_tx_bytes_per_s: Amount | None = None  # from the GPU
    pcie_generation: Count | None = None  # generation of its link, the highest so far: an idle GPU lowers it
    pcie_width: Count | None = None  # lanes of its link, the most so far
    pcie_generation_max: Count | None = None  # the highest that both the card and its slot support
    pcie_width_max: Count | None = None
    pcie_replays: Count | None = None  # packets sent again, since the driver was loaded; read once a minute
    c2c: bool | None = None  # True: copies use NVLink-C2C to the CPU, which the PCIe counters do not include
    nvlink_rx_bytes_per_s: Amount | None = None
    nvlink_tx_bytes_per_s: Amount | None = None
    ecc_errors: Count | None = None  # uncorrected errors, since the driver was loaded
    row_remap: RowRemap | None = None  # read once a minute
    xids: list[Count] = msgspec.field(default_factory=list)  # numbers (Xid) of the driver errors in the window
    pids: list[Pid] = msgspec.field(default_factory=list)  # all processes on it
    processes: list[GpuProcess] = msgspec.field(default_factory=list)  # those with the most memory
    parent_uuid: str | None = None  # of a MIG instance: the GPU that it is part of
    compute_capability: Amount | None = None  # such as 9.0
    near_nodes: list[Index] | None = None  # the NUMA node that it is attached to, then the others of that socket
    chosen: bool = False  # True if the run's CUDA_VISIBLE_DEVICES names it
    cost_ms: Amount | None = None  # duration of the driver calls for this record

    @property
    def memory_ratio(self) -> float | None:
        """The share of its memory that is in use."""
        used, total = self.memory_used_bytes, self.memory_total_bytes
        return used / total if used is not None and total else None


#: Facts of a GPU that seldom change: if a record has None, the value of the record before holds.
GPU_FACTS = (
    "memory_total_bytes",
    "power_limit_w",
    "power_limit_default_w",
    "sm_clock_max_mhz",
    "pcie_generation",
    "pcie_width",
    "pcie_generation_max",
    "pcie_width_max",
    "pcie_replays",
    "c2c",
    "row_remap",
    "compute_capability",
    "near_nodes",
    "parent_uuid",
)


@lru_cache(1024)
def bare_uuid(uuid: str) -> str:
    """A UUID without "GPU-" or "MIG-": torch reports that of a MIG instance without this prefix."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


def used_uuids(gpus: Iterable[Gpu], reported: Set[str], pids: Set[int]) -> set[str]:
    """UUIDs of the GPUs that a run uses; with a MIG instance also that of its GPU.

    A GPU is used if the run's processes report it (``reported``: bare UUIDs), if the driver lists one of their ``pids``
    on it, or if nothing is reported and CUDA_VISIBLE_DEVICES names it.
    """
    used = set()
    for gpu in gpus:
        if bare_uuid(gpu.uuid) in reported or not pids.isdisjoint(gpu.pids) or (gpu.chosen and not reported):
            used |= {gpu.uuid, gpu.parent_uuid or gpu.uuid}
    return used


class GpuPhase(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A phase on the GPU's clock: ``[name, span_ns, idle_ns, maybe_idle_ns]``.

    ``span_ns``: from the moment the GPU reached its beginning to the moment it reached its end. The GPU was idle for at
    least ``idle_ns`` of it, and for at most ``maybe_idle_ns`` more: meanwhile the CPU was still launching the work of
    the phase, and it is not known at which moments the GPU had work left.
    """

    name: str
    span_ns: Count
    idle_ns: Count
    maybe_idle_ns: Count


#: The boundaries of a loop that are timed on the GPU's clock, in their order.
GPU_BOUNDARIES = ("fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end")


class Lead(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The launch lead at one kind of boundary: how far the GPU lags behind the CPU there.

    ``[boundary, count, min_us, median_us, max_us, idle_count, mean_us, at_least_us]``. The times are None if the offset
    between the clocks is not known well enough.
    """

    boundary: str  # one of ``GPU_BOUNDARIES``
    count: Count  # number of these boundaries
    min_us: Signed | None
    median_us: Signed | None
    max_us: Signed | None
    idle_count: Count  # boundaries at which the stream was idle
    mean_us: Signed | None = None  # over all these boundaries; unlike medians, means add up over the parts of a step
    at_least_us: Signed | None = None  # lower bound that holds at each of them; may be known if the times are not


class GpuExchange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of a timed step, in which ranks exchange gradients: ``[reached_s, forward_ns, backward_ns, after_ns]``.

    On the GPU: all forward passes of the step (None if it begins with backward), the last backward pass, and the time
    from there to the update, which the GPU reached at ``reached_s`` on the clock of ``t``.
    """

    reached_s: Moment
    forward_ns: Count | None
    backward_ns: Count
    after_ns: Count


class GpuAccumulation(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Timed steps that accumulate the gradients of three or more backward passes: ``[steps, own_ns, last_ns]``.

    ``own_ns``: mean length of the passes between the first and the last, which exchange nothing under ``no_sync()``.
    ``last_ns``: length of the last. Both are summed over the steps.
    """

    steps: Positive
    own_ns: Count
    last_ns: Count


class GpuTime(Record, frozen=True, kw_only=True, tag="gpu_time"):
    """Steps timed by CUDA events that completed in a window; to keep the cost down, not every step is timed.

    A step lasts from the first boundary after an update to the next such boundary. The ``span_ns`` of the phases add up
    to ``total_ns``, except ``eval``, which belongs to no step.
    """

    window_s: Window
    device: Index  # torch's number of the GPU
    steps: Count = msgspec.field(name="turns")
    total_ns: Count  # length of these steps on the GPU's clock
    phases: list[GpuPhase]
    leads: list[Lead]
    lead_error_us: Amount | None = None  # half the width of the interval that contains the offset between the clocks
    bounded: bool = False  # False in old logs: all time of a phase may be idle
    exchanges: Annotated[list[GpuExchange], BOUNDED] = msgspec.field(default_factory=list)  # several ranks: 1 a second
    accumulation: GpuAccumulation | None = None  # with several ranks
