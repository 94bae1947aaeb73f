"""The table of metrics: every name, label and help text; docs/metrics.md lists the same.

Names end in their unit; those of GPUs follow OpenTelemetry's conventions for hardware. Label values are bounded: ranks,
GPUs, phases, rules; never files, lines, pids or names that a program makes up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """One metric, by the names that Prometheus reads; ``constants`` are labels with a fixed value.

    ``of``: path of attributes to its value, in a row of the report with these labels; if the rows lack the last label,
    a path for each value of that label; "": the row itself is the value.
    """

    name: str
    labels: tuple[str, ...]
    of: str | Mapping[str, str]
    help: str
    constants: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """Its type in Prometheus."""
        return "counter" if self.name.endswith("_total") else "histogram" if self.of == HISTOGRAM else "gauge"

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Names of all labels, those of the constants last."""
        return (*self.labels, *(name for name, _ in self.constants))


HISTOGRAM = "since_start"
RANK = ("rank",)
GPU = ("UUID", "gpu")  # as DCGM's exporter spells it, so that both can be joined
_IS_GPU = (("hw_type", "gpu"),)

# fmt: off
METRICS: tuple[Metric, ...] = (
    # the run
    Metric("tuimon_run_info", ("run", "host", "mode", "version"), "", "Always 1; the labels describe the run."),
    Metric("tuimon_run_start_time_seconds", (), "run.started_unix_s", "When monitoring began, in seconds since 1970."),
    Metric("tuimon_run_exit_code", (), "run.exit_code", "Exit code of the run, once it has ended and is known."),
    Metric(
        "tuimon_wall_time_seconds", ("part",), "seconds",
        "How the time since monitoring began is divided: training steps, import, evaluation, checkpoints and more."),
    Metric("tuimon_ranks", (), "alive", "Training processes that are alive."),

    # steps and phases of each rank
    Metric("tuimon_steps_total", RANK, "since_start.steps", "Training steps that have ended."),
    Metric(
        "tuimon_step_seconds", RANK, HISTOGRAM,
        "Length of the steps timed boundary by boundary: all steps of 21 ms or more, and some of the shorter ones."),
    Metric(
        "tuimon_step_recent_seconds", (*RANK, "statistic"), {"median": "steps.median_ms", "p95": "steps.p95_ms"},
        "Length of a step over the last 30 s, exact within 0.5 %: median and p95."),
    Metric(
        "tuimon_last_step_time_seconds", RANK, "since_start.last_step_unix_s",
        "When the latest step ended, in seconds since 1970, within one window."),
    Metric(
        "tuimon_phase_seconds_total", (*RANK, "phase"), "since_start.phase_s",
        "Time in each phase of steps; between: data or forward, which markers cannot split; eval: outside the steps."),
    Metric(
        "tuimon_phase_share_ratio", (*RANK, "phase"), "phase_shares",
        "Share of each phase in the steps of the last 30 s, with the time between divided by stack samples."),
    Metric(
        "tuimon_phase_share_error_ratio", (*RANK, "phase"), "phase_errors",
        "Half the width of the 95 % interval of a phase's share; only for shares estimated from stack samples."),
    Metric(
        "tuimon_samples_per_second", RANK, "samples_per_s",
        "Samples that the rank trains on in a second, over the last 30 s."),
    Metric(
        "tuimon_tokens_per_second", RANK, "tokens_per_s",
        "Tokens that the rank trains on in a second, over the last 30 s; without padding, if that is known."),
    Metric(
        "tuimon_flops_per_second", RANK, "flops_per_s",
        "Floating-point operations a second, by the shapes in the rank's latest trace and the pace of the last 30 s."),
    Metric("tuimon_mfu_ratio", RANK, "mfu_ratio", "FLOPs a second, as a share of the dense peak of the rank's GPUs."),
    Metric(
        "tuimon_time_left_seconds", RANK, "left_s",
        "How long the run still takes at the pace of the last 30 s, if its Trainer states the number of its steps."),
    Metric(
        "tuimon_checkpoints_total", RANK, "checkpoints.number",
        "Checkpoints since the first steps, as bursts of writing; absent if they are too close together to separate."),
    Metric("tuimon_checkpoint_size_bytes_total", RANK, "checkpoints.size_bytes", "Bytes written by these checkpoints."),
    Metric(
        "tuimon_checkpoint_time_seconds_total", RANK, "checkpoints.seconds",
        "Time that the training thread spent saving checkpoints since the first steps, estimated from stack samples."),
    Metric(
        "tuimon_checkpoint_info", (*RANK, "file_system"), "",
        "Always 1; the label is the type of the checkpoints' file system."),
    Metric("tuimon_eval_iterations_total", RANK, "since_start.eval_count", "Evaluation iterations."),
    Metric(
        "tuimon_gc_seconds_total", RANK, "since_start.gc_s",
        "Pauses of Python's garbage collector of at least 0.5 ms."),
    Metric("tuimon_markers", RANK, "markers", "1 if steps are measured by markers, 0 if phases are inferred."),
    Metric(
        "tuimon_markers_dropped_total", RANK, "since_start.dropped",
        "Markers that were overwritten before they were read."),
    Metric("tuimon_process_cpu_ratio", RANK, "cpu_ratio", "CPU of the training process; 1 is one core."),
    Metric("tuimon_process_memory_bytes", RANK, "rss_bytes", "Resident memory of the training process."),

    # ranks compared, of a training with several
    Metric(
        "tuimon_ranks_state", ("state",), "",
        "Ranks by state: starting, training, stopped, silent, lost (ended while others go on), ended."),
    Metric("tuimon_rank_behind", RANK, "behind", "Steps that a rank is behind the first."),
    Metric(
        "tuimon_rank_wait_ratio", RANK, "wait_ratio",
        "Share of its step that a rank waits for the others in collectives, estimated from stack samples."),
    Metric(
        "tuimon_rank_late_ratio", RANK, "late_ratio",
        "Share of its step by which a rank's own work takes longer than the others', which wait for it; estimated."),
    Metric("tuimon_rank_restarts_total", RANK, "restarts", "How often a rank was started again."),

    # a rank and its GPU
    Metric(
        "tuimon_launch_lead_seconds", (*RANK, "boundary"), "median_us",
        "How far launches run ahead of the GPU at a boundary of the step: median of the last 30 s."),
    Metric(
        "tuimon_gpu_idle_ratio", (*RANK, "bound"),
        {"at_least": "gpu_time.idle_at_least", "at_most": "gpu_time.idle_at_most"},
        "Share of the steps' time on the GPU's clock in which the GPU was idle: at least and at most.",
    ),
    Metric(
        "tuimon_torch_memory_allocated_bytes", (*RANK, "device"), "allocated_bytes",
        "GPU memory in tensors, by torch's allocator."),
    Metric(
        "tuimon_torch_memory_reserved_bytes", (*RANK, "device"), "reserved_bytes",
        "GPU memory kept by torch's allocator."),

    # DataLoaders: of each rank and role (train, eval) the one that was used last
    Metric("tuimon_loader_workers", (*RANK, "role"), "facts.workers", "Workers of the DataLoader."),
    Metric(
        "tuimon_loader_workers_busy_ratio", (*RANK, "role"), "busy_ratio",
        "Share of the last 30 s in which workers made batches, mean over the workers that have reported."),
    Metric(
        "tuimon_loader_ready_batches", (*RANK, "role"), "ready_mean",
        "Batches that were ready at a fetch, mean of the last 30 s."),
    Metric(
        "tuimon_loader_none_ready_ratio", (*RANK, "role"), "ready_none_ratio",
        "Share of the fetches of the last 30 s that found no batch ready."),
    Metric(
        "tuimon_loader_fetch_wait_seconds", (*RANK, "role"), "wait_ms",
        "How long the training waited for a batch, mean of the last 30 s."),

    # GPUs, as the driver reports them
    Metric("tuimon_gpu_info", (*GPU, "model"), "", "Always 1; the labels describe the GPU."),
    Metric("tuimon_gpu_used_by_run", GPU, "used_by_run", "1 if the run uses the GPU."),
    Metric(
        "hw_gpu_utilization_ratio", GPU, "latest.util_ratio",
        "Share of time in which some kernel was running, as last read.", (("hw_gpu_task", "general"),)),
    Metric("hw_gpu_memory_usage_bytes", GPU, "latest.memory_used_bytes", "GPU memory in use."),
    Metric("hw_gpu_memory_limit_bytes", GPU, "latest.memory_total_bytes", "Size of the GPU memory."),
    Metric("hw_gpu_memory_utilization_ratio", GPU, "latest.memory_ratio", "Share of the GPU memory in use."),
    Metric("hw_power_watts", GPU, "latest.power_w", "Power of the GPU, mean of the last second.", _IS_GPU),
    Metric("hw_energy_joules_total", GPU, "latest.energy_j", "Energy since the driver was loaded.", _IS_GPU),
    Metric("hw_temperature_celsius", GPU, "latest.temperature_c", "Temperature of the GPU.", _IS_GPU),
    Metric(
        "hw_errors_total", GPU, "latest.ecc_errors",
        "Uncorrected memory errors since the driver was loaded.", (*_IS_GPU, ("error_type", "uncorrected_ecc"))),
    Metric("tuimon_gpu_power_limit_watts", GPU, "latest.power_limit_w", "Limit of the GPU's power."),
    Metric("tuimon_gpu_sm_clock_hertz", GPU, "latest.sm_clock_mhz", "Clock of the multiprocessors, as last read."),
    Metric("tuimon_gpu_sm_ratio", GPU, "latest.sm_ratio", "Share of the multiprocessors that were busy, as last read."),
    Metric(
        "tuimon_gpu_occupancy_ratio", GPU, "latest.occupancy_ratio",
        "Resident warps as a share of the most possible, as last read."),
    Metric(
        "tuimon_gpu_tensor_ratio", GPU, "latest.tensor_ratio",
        "Share of time in which the tensor pipes were busy, as last read."),
    Metric(
        "tuimon_gpu_dram_ratio", GPU, "latest.dram_ratio",
        "Memory bandwidth in use as a share of the peak, as last read."),
    Metric(
        "tuimon_gpu_pcie_bytes_per_second", (*GPU, "direction"),
        {"receive": "latest.pcie_rx_bytes_per_s", "transmit": "latest.pcie_tx_bytes_per_s"},
        "PCIe traffic to the GPU (receive) and from it (transmit), as last read."),
    Metric(
        "tuimon_gpu_nvlink_bytes_per_second", (*GPU, "direction"),
        {"receive": "latest.nvlink_rx_bytes_per_s", "transmit": "latest.nvlink_tx_bytes_per_s"},
        "NVLink traffic to the GPU (receive) and from it (transmit), as last read."),
    Metric(
        "tuimon_gpu_throttled_ratio", (*GPU, "cause"), "",
        "Share of the last 30 s in which a cause held the clocks down."),
    Metric(
        "tuimon_gpu_step_energy_joules", GPU, "joules_per_step",
        "Energy of a step: of all GPUs of the first rank, on the first of them."),

    # what the rules find
    Metric("tuimon_finding", ("rule", "severity"), "", "1 for each rule with a finding now; absent otherwise."),
    Metric(
        "tuimon_finding_share_ratio", ("rule",), "share_of_step",
        "Share of the step that a finding takes; an upper bound if that is idle time of the GPU."),
    Metric(
        "tuimon_finding_speedup_ratio", ("rule",), "estimated_speedup",
        "Step time now divided by the estimated step time with the best fix."),

    # tuimon itself
    Metric("tuimon_monitor_cpu_ratio", (), "session.cost.cpu_ratio", "CPU of tuimon with its samplers; 1 is one core."),
    Metric("tuimon_monitor_memory_bytes", (), "session.cost.rss_bytes", "Resident memory of tuimon."),
    Metric("tuimon_monitor_records_dropped_total", (), "session.cost.queue_dropped", "Records lost to a full queue."),
)
# fmt: on
