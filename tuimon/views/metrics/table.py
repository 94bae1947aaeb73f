"""The table of metrics: every name, label and help text there is; docs/metrics.md lists the same.

Names end in their unit; those of GPUs follow OpenTelemetry's conventions for hardware. Label values are bounded: ranks,
GPUs, phases, rules; never files, lines, pids or names that a program makes up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

#: Longest label value, in characters: names of GPUs take about 40, UUIDs of MIG instances 100.
_LONGEST_VALUE = 128


class Metric(NamedTuple):
    """One metric, by the names that Prometheus reads; ``constants`` are labels whose value never differs."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Names of all labels, those of the constants last."""
        return (*self.labels, *(name for name, _ in self.constants))


class Distribution(NamedTuple):
    """The value of a histogram: how many of all that was counted lie up to each bound, and beyond the last."""

    counts: tuple[int, ...]  # one more than there are bounds, not added up
    total: float  # sum of all values


class MetricSample(NamedTuple):
    """A metric's value for one set of label values."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Distribution


def known(metric: Metric, labels: tuple[str, ...], value: float | None, unit: float = 1.0) -> Iterator[MetricSample]:
    """The sample of a value in ``unit`` of the metric's own; nothing where it was not measured."""
    if value is not None:
        yield MetricSample(metric, labels, value * unit)


def label_value(text: str) -> str:
    """A text from outside as a label value."""
    return text[:_LONGEST_VALUE]


RANK = "rank"
PHASE = "phase"
ROLE = "role"
RULE = "rule"
UUID = "UUID"  # as DCGM's exporter spells it, so that both can be joined
GPU = "gpu"
_OF_GPU = (UUID, GPU)
_IS_GPU = (("hw_type", "gpu"),)

#: Upper bounds of the histogram of steps, in seconds: three a decade, from 0.1 ms to 500 s.
STEP_BOUNDS = tuple(float(f"{digit}e{power}") for power in range(-4, 3) for digit in (1, 2, 5))

# -- the run

RUN_INFO = Metric(
    "tuimon_run_info", "gauge", "Always 1; the labels describe the run.",
    ("run", "host", "mode", "version"),
)  # fmt: skip
RUN_START = Metric("tuimon_run_start_time_seconds", "gauge", "When monitoring began, in seconds since 1970.")
RUN_EXIT = Metric("tuimon_run_exit_code", "gauge", "Exit code of the run, once it has ended and is known.")
WALL_TIME = Metric(
    "tuimon_wall_time_seconds", "gauge",
    "How the time since monitoring began divides: training steps, import, set-up, evaluation, checkpoint and more.",
    ("part",),
)  # fmt: skip
RANKS = Metric("tuimon_ranks", "gauge", "Training processes that are alive.")

# -- steps and phases of each rank

STEPS = Metric("tuimon_steps_total", "counter", "Training steps that have ended.", (RANK,))
STEP = Metric(
    "tuimon_step_seconds", "histogram",
    "Length of the steps that were timed boundary by boundary, all of 13 ms or more, and a part of shorter ones.",
    (RANK,),
)  # fmt: skip
STEP_RECENT = Metric(
    "tuimon_step_recent_seconds", "gauge", "Length of a step over the last 30 s, exact within 0.5 %: median and p95.",
    (RANK, "statistic"),
)  # fmt: skip
LAST_STEP = Metric(
    "tuimon_last_step_time_seconds", "gauge", "When the latest step ended, in seconds since 1970, within one window.",
    (RANK,),
)  # fmt: skip
PHASE_TIME = Metric(
    "tuimon_phase_seconds_total", "counter",
    "Time in each exclusive phase of the steps. What markers cannot split is the phase between; eval is of no step.",
    (RANK, PHASE),
)  # fmt: skip
PHASE_SHARE = Metric(
    "tuimon_phase_share_ratio", "gauge",
    "Share of each phase in the steps of the last 30 s, with the time between divided by stack samples.",
    (RANK, PHASE),
)  # fmt: skip
PHASE_ERROR = Metric(
    "tuimon_phase_share_error_ratio", "gauge",
    "Half the width of the 95 % interval of a phase's share; only for shares estimated from stack samples.",
    (RANK, PHASE),
)  # fmt: skip
SAMPLES_RATE = Metric(
    "tuimon_samples_per_second", "gauge", "Samples that the rank trains on in a second, over the last 30 s.",
    (RANK,),
)  # fmt: skip
TOKENS_RATE = Metric(
    "tuimon_tokens_per_second", "gauge",
    "Tokens that the rank trains on in a second, over the last 30 s; without padding, where a mask shows it.", (RANK,),
)  # fmt: skip
FLOPS_RATE = Metric(
    "tuimon_flops_per_second", "gauge",
    "Floating-point operations a second, by the shapes in the rank's latest trace and the pace of the last 30 s.",
    (RANK,),
)  # fmt: skip
MFU = Metric("tuimon_mfu_ratio", "gauge", "These operations, as a share of the dense peak of the rank's GPUs.", (RANK,))
TIME_LEFT = Metric(
    "tuimon_time_left_seconds", "gauge",
    "How long the run still takes at the pace of the last 30 s, where its Trainer says how many steps it makes.",
    (RANK,),
)  # fmt: skip
CHECKPOINTS = Metric(
    "tuimon_checkpoints_total", "counter",
    "Checkpoints since the first steps, as bursts of writing; absent where they are too close to be told apart.",
    (RANK,),
)  # fmt: skip
CHECKPOINT_SIZE = Metric("tuimon_checkpoint_size_bytes_total", "counter", "Bytes written in these bursts.", (RANK,))
CHECKPOINT_TIME = Metric(
    "tuimon_checkpoint_time_seconds_total", "counter",
    "Time that the training thread spent saving checkpoints since the first steps, estimated from stack samples.",
    (RANK,),
)  # fmt: skip
CHECKPOINT_INFO = Metric(
    "tuimon_checkpoint_info", "gauge", "Always 1; the label is the type of file system that they go to.",
    (RANK, "file_system"),
)  # fmt: skip
EVALUATIONS = Metric("tuimon_eval_iterations_total", "counter", "Evaluation iterations.", (RANK,))
GC = Metric("tuimon_gc_seconds_total", "counter", "Pauses of Python's garbage collector of at least 0.5 ms.", (RANK,))
MARKERS = Metric(
    "tuimon_markers", "gauge", "1 where steps are measured by markers, 0 where phases are inferred.",
    (RANK,),
)  # fmt: skip
MARKERS_DROPPED = Metric(
    "tuimon_markers_dropped_total", "counter", "Markers that were overwritten before they were read.", (RANK,)
)
PROCESS_CPU = Metric("tuimon_process_cpu_ratio", "gauge", "CPU of the training process; 1 is one core.", (RANK,))
PROCESS_MEMORY = Metric("tuimon_process_memory_bytes", "gauge", "Resident memory of the training process.", (RANK,))

# -- ranks compared, of a training with several

RANK_STATES = Metric(
    "tuimon_ranks_state", "gauge",
    "Ranks by state: starting, training, stopped, silent, lost (ended while others go on), ended.", ("state",),
)  # fmt: skip
RANK_BEHIND = Metric("tuimon_rank_behind", "gauge", "Steps that a rank is behind the first.", (RANK,))
RANK_WAIT = Metric(
    "tuimon_rank_wait_ratio", "gauge",
    "Share of its step that a rank waits for the others in collectives, estimated from stack samples.", (RANK,),
)  # fmt: skip
RANK_LATE = Metric(
    "tuimon_rank_late_ratio", "gauge",
    "Share of its step by which a rank's own work takes longer than the others', which wait for it; estimated.",
    (RANK,),
)  # fmt: skip
RANK_RESTARTS = Metric("tuimon_rank_restarts_total", "counter", "How often a rank was started again.", (RANK,))

# -- a rank and its GPU

LEAD = Metric(
    "tuimon_launch_lead_seconds", "gauge",
    "How far launches run ahead of the GPU at a boundary of the step: median of the last 30 s.",
    (RANK, "boundary"),
)  # fmt: skip
GPU_IDLE = Metric(
    "tuimon_gpu_idle_ratio", "gauge",
    "Share of the steps' time on the GPU's clock in which it was idle: at least and at most, by CUDA events alone.",
    (RANK, "bound"),
)  # fmt: skip
TORCH_ALLOCATED = Metric(
    "tuimon_torch_memory_allocated_bytes", "gauge", "GPU memory in tensors, by torch's allocator.",
    (RANK, "device"),
)  # fmt: skip
TORCH_RESERVED = Metric(
    "tuimon_torch_memory_reserved_bytes", "gauge", "GPU memory kept by torch's allocator.", (RANK, "device")
)

# -- DataLoaders: of each rank and role (train, eval) the one that was used last

LOADER_WORKERS = Metric("tuimon_loader_workers", "gauge", "Workers of the DataLoader.", (RANK, ROLE))
LOADER_BUSY = Metric(
    "tuimon_loader_workers_busy_ratio", "gauge",
    "Share of the last 30 s in which workers made batches, mean over the workers that have reported.", (RANK, ROLE),
)  # fmt: skip
LOADER_READY = Metric(
    "tuimon_loader_ready_batches", "gauge", "Batches that lay ready at a fetch, mean of the last 30 s.",
    (RANK, ROLE),
)  # fmt: skip
LOADER_NONE_READY = Metric(
    "tuimon_loader_none_ready_ratio", "gauge", "Share of the fetches of the last 30 s that found no batch ready.",
    (RANK, ROLE),
)  # fmt: skip
LOADER_WAIT = Metric(
    "tuimon_loader_fetch_wait_seconds", "gauge", "How long the training waited for a batch, mean of the last 30 s.",
    (RANK, ROLE),
)  # fmt: skip

# -- GPUs, as the driver reports them

GPU_INFO = Metric("tuimon_gpu_info", "gauge", "Always 1; the labels describe the GPU.", (*_OF_GPU, "model"))
GPU_USED = Metric("tuimon_gpu_used_by_run", "gauge", "1 where the run uses the GPU.", _OF_GPU)
GPU_UTILIZATION = Metric(
    "hw_gpu_utilization_ratio", "gauge", "Share of time in which some kernel was running, as last read.", _OF_GPU,
    (("hw_gpu_task", "general"),),
)  # fmt: skip
GPU_MEMORY = Metric("hw_gpu_memory_usage_bytes", "gauge", "GPU memory in use.", _OF_GPU)
GPU_MEMORY_LIMIT = Metric("hw_gpu_memory_limit_bytes", "gauge", "Size of the GPU memory.", _OF_GPU)
GPU_MEMORY_SHARE = Metric("hw_gpu_memory_utilization_ratio", "gauge", "Share of the GPU memory in use.", _OF_GPU)
GPU_POWER = Metric("hw_power_watts", "gauge", "Power of the GPU, mean of the last second.", _OF_GPU, _IS_GPU)
GPU_ENERGY = Metric("hw_energy_joules_total", "counter", "Energy since the driver was loaded.", _OF_GPU, _IS_GPU)
GPU_TEMPERATURE = Metric("hw_temperature_celsius", "gauge", "Temperature of the GPU.", _OF_GPU, _IS_GPU)
GPU_ERRORS = Metric(
    "hw_errors_total", "counter", "Uncorrected memory errors since the driver was loaded.", _OF_GPU,
    (*_IS_GPU, ("error_type", "uncorrected_ecc")),
)  # fmt: skip
GPU_POWER_LIMIT = Metric("tuimon_gpu_power_limit_watts", "gauge", "Limit of the GPU's power.", _OF_GPU)
GPU_SM_CLOCK = Metric("tuimon_gpu_sm_clock_hertz", "gauge", "Clock of the multiprocessors, as last read.", _OF_GPU)
GPU_SM = Metric("tuimon_gpu_sm_ratio", "gauge", "Share of the multiprocessors that were busy, as last read.", _OF_GPU)
GPU_OCCUPANCY = Metric(
    "tuimon_gpu_occupancy_ratio", "gauge", "Resident warps of the most possible, as last read.", _OF_GPU
)
GPU_TENSOR = Metric(
    "tuimon_gpu_tensor_ratio", "gauge", "Share of time in which the tensor pipes were busy, as last read.", _OF_GPU
)
GPU_DRAM = Metric(
    "tuimon_gpu_dram_ratio", "gauge", "Memory bandwidth in use of the most possible, as last read.", _OF_GPU
)
GPU_PCIE = Metric(
    "tuimon_gpu_pcie_bytes_per_second", "gauge",
    "PCIe traffic to the GPU (receive) and from it (transmit), as last read.",
    (*_OF_GPU, "direction"),
)  # fmt: skip
GPU_NVLINK = Metric(
    "tuimon_gpu_nvlink_bytes_per_second", "gauge",
    "NVLink traffic to the GPU (receive) and from it (transmit), as last read.",
    (*_OF_GPU, "direction"),
)  # fmt: skip
GPU_THROTTLED = Metric(
    "tuimon_gpu_throttled_ratio", "gauge", "Share of the last 30 s in which a cause held the clocks down.",
    (*_OF_GPU, "cause"),
)  # fmt: skip
GPU_STEP_ENERGY = Metric(
    "tuimon_gpu_step_energy_joules", "gauge", "Energy of a step: of all GPUs of the first rank, on the first of them.",
    _OF_GPU,
)  # fmt: skip

# -- what the rules find

FINDING = Metric(
    "tuimon_finding", "gauge", "1 for each rule that finds something now; absent otherwise.",
    (RULE, "severity"),
)  # fmt: skip
FINDING_SHARE = Metric(
    "tuimon_finding_share_ratio", "gauge",
    "Share of the step that a finding takes; where that is idle time of the GPU, at most.", (RULE,),
)  # fmt: skip
FINDING_SPEEDUP = Metric(
    "tuimon_finding_speedup_ratio", "gauge", "Step time now by step time with the best fix, as estimated.", (RULE,)
)

# -- tuimon itself

MONITOR_CPU = Metric("tuimon_monitor_cpu_ratio", "gauge", "CPU of tuimon with its samplers; 1 is one core.")
MONITOR_MEMORY = Metric("tuimon_monitor_memory_bytes", "gauge", "Resident memory of tuimon.")
MONITOR_DROPPED = Metric("tuimon_monitor_records_dropped_total", "counter", "Records lost to a full queue.")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
