"""The table of metrics: every name, unit, label and help text there is. Both exporters read it, and docs/metrics.md.

Names and units are OpenTelemetry's; those of GPUs follow its conventions for hardware, with the UUID labelled as DCGM's
exporter labels it, so that both can be joined. Label values are bounded: ranks, GPUs, phases, rules; never files,
lines, pids or names that a program makes up.
"""

from __future__ import annotations

from tuimon.views.metrics.metric import Label, Metric

RANK = Label("rank")
PHASE = Label("phase")
ROLE = Label("role")
RULE = Label("rule")
UUID = Label("UUID", ("hw.id", "UUID"))
GPU = Label("gpu")
_OF_GPU = (UUID, GPU)
_IS_GPU = (("hw.type", "gpu"),)

#: Upper bounds of the histogram of steps, in seconds: three a decade, from 0.1 ms to 500 s.
STEP_BOUNDS = tuple(float(f"{digit}e{power}") for power in range(-4, 3) for digit in (1, 2, 5))

# -- the run

RUN_INFO = Metric(
    "tuimon.run.info", "gauge", "{run}", "Always 1; the labels describe the run.",
    (Label("run"), Label("host"), Label("mode"), Label("version")),
)  # fmt: skip
RUN_START = Metric("tuimon.run.start_time", "gauge", "s", "When monitoring began, in seconds since 1970.")
RUN_EXIT = Metric("tuimon.run.exit_code", "gauge", "{code}", "Exit code of the run, once it has ended and is known.")
WALL_TIME = Metric(
    "tuimon.wall_time", "gauge", "s",
    "How the time since monitoring began divides: training steps, import, set-up, evaluation, checkpoint and more.",
    (Label("part"),),
)  # fmt: skip
RANKS = Metric("tuimon.ranks", "gauge", "{rank}", "Training processes that are alive.")

# -- steps and phases of each rank

STEPS = Metric("tuimon.steps", "counter", "{step}", "Training steps that have ended.", (RANK,))
STEP = Metric(
    "tuimon.step", "histogram", "s",
    "Length of the steps that were timed boundary by boundary, all of 13 ms or more, and a part of shorter ones.",
    (RANK,),
)  # fmt: skip
STEP_RECENT = Metric(
    "tuimon.step.recent", "gauge", "s", "Length of a step over the last 30 s, exact within 0.5 %: median and p95.",
    (RANK, Label("statistic")),
)  # fmt: skip
LAST_STEP = Metric(
    "tuimon.last_step.time", "gauge", "s", "When the latest step ended, in seconds since 1970, within one window.",
    (RANK,),
)  # fmt: skip
PHASE_TIME = Metric(
    "tuimon.phase", "counter", "s",
    "Time in each exclusive phase of the steps. What markers cannot split is the phase between; eval is of no step.",
    (RANK, PHASE),
)  # fmt: skip
PHASE_SHARE = Metric(
    "tuimon.phase.share", "gauge", "1",
    "Share of each phase in the steps of the last 30 s, with the time between divided by stack samples.",
    (RANK, PHASE),
)  # fmt: skip
PHASE_ERROR = Metric(
    "tuimon.phase.share.error", "gauge", "1",
    "Half the width of the 95 % interval of a phase's share; only for shares estimated from stack samples.",
    (RANK, PHASE),
)  # fmt: skip
SAMPLES_RATE = Metric(
    "tuimon.samples", "gauge", "{sample}/s", "Samples that the rank trains on in a second, over the last 30 s.",
    (RANK,),
)  # fmt: skip
TOKENS_RATE = Metric(
    "tuimon.tokens", "gauge", "{token}/s",
    "Tokens that the rank trains on in a second, over the last 30 s; without padding, where a mask shows it.", (RANK,),
)  # fmt: skip
FLOPS_RATE = Metric(
    "tuimon.flops", "gauge", "{operation}/s",
    "Floating-point operations a second, by the shapes in the rank's latest trace and the pace of the last 30 s.",
    (RANK,),
)  # fmt: skip
MFU = Metric("tuimon.mfu", "gauge", "1", "These operations, as a share of the dense peak of the rank's GPUs.", (RANK,))
TIME_LEFT = Metric(
    "tuimon.time_left", "gauge", "s",
    "How long the run still takes at the pace of the last 30 s, where its Trainer says how many steps it makes.",
    (RANK,),
)  # fmt: skip
CHECKPOINTS = Metric(
    "tuimon.checkpoints", "counter", "{checkpoint}",
    "Checkpoints since the first steps, as bursts of writing; absent where they are too close to be told apart.",
    (RANK,),
)  # fmt: skip
CHECKPOINT_SIZE = Metric("tuimon.checkpoint.size", "counter", "By", "Bytes written in these bursts.", (RANK,))
CHECKPOINT_TIME = Metric(
    "tuimon.checkpoint.time", "counter", "s",
    "Time that the training thread spent saving checkpoints since the first steps, estimated from stack samples.",
    (RANK,),
)  # fmt: skip
CHECKPOINT_INFO = Metric(
    "tuimon.checkpoint.info", "gauge", "{rank}", "Always 1; the label is the type of file system that they go to.",
    (RANK, Label("file_system")),
)  # fmt: skip
EVALUATIONS = Metric("tuimon.eval.iterations", "counter", "{iteration}", "Evaluation iterations.", (RANK,))
GC = Metric("tuimon.gc", "counter", "s", "Pauses of Python's garbage collector of at least 0.5 ms.", (RANK,))
MARKERS = Metric(
    "tuimon.markers", "gauge", "{process}", "1 where steps are measured by markers, 0 where phases are inferred.",
    (RANK,),
)  # fmt: skip
MARKERS_DROPPED = Metric(
    "tuimon.markers.dropped", "counter", "{marker}", "Markers that were overwritten before they were read.", (RANK,)
)
PROCESS_CPU = Metric("tuimon.process.cpu", "gauge", "1", "CPU of the training process; 1 is one core.", (RANK,))
PROCESS_MEMORY = Metric("tuimon.process.memory", "gauge", "By", "Resident memory of the training process.", (RANK,))

# -- ranks compared, of a training with several

RANK_STATES = Metric(
    "tuimon.ranks.state", "gauge", "{rank}",
    "Ranks by state: starting, training, stopped, silent, lost (ended while others go on), ended.", (Label("state"),),
)  # fmt: skip
RANK_BEHIND = Metric("tuimon.rank.behind", "gauge", "{step}", "Steps that a rank is behind the first.", (RANK,))
RANK_WAIT = Metric(
    "tuimon.rank.wait", "gauge", "1",
    "Share of its step that a rank waits for the others in collectives, estimated from stack samples.", (RANK,),
)  # fmt: skip
RANK_LATE = Metric(
    "tuimon.rank.late", "gauge", "1",
    "Share of its step by which a rank's own work takes longer than the others', which wait for it; estimated.",
    (RANK,),
)  # fmt: skip
RANK_RESTARTS = Metric("tuimon.rank.restarts", "counter", "{restart}", "How often a rank was started again.", (RANK,))

# -- a rank and its GPU

LEAD = Metric(
    "tuimon.launch_lead", "gauge", "s",
    "How far launches run ahead of the GPU at a boundary of the step: median of the last 30 s.",
    (RANK, Label("boundary")),
)  # fmt: skip
GPU_IDLE = Metric(
    "tuimon.gpu.idle", "gauge", "1",
    "Share of the steps' time on the GPU's clock in which it was idle: at least and at most, by CUDA events alone.",
    (RANK, Label("bound")),
)  # fmt: skip
TORCH_ALLOCATED = Metric(
    "tuimon.torch.memory.allocated", "gauge", "By", "GPU memory in tensors, by torch's allocator.",
    (RANK, Label("device")),
)  # fmt: skip
TORCH_RESERVED = Metric(
    "tuimon.torch.memory.reserved", "gauge", "By", "GPU memory kept by torch's allocator.", (RANK, Label("device"))
)

# -- DataLoaders: of each rank and role (train, eval) the one that was used last

LOADER_WORKERS = Metric("tuimon.loader.workers", "gauge", "{worker}", "Workers of the DataLoader.", (RANK, ROLE))
LOADER_BUSY = Metric(
    "tuimon.loader.workers.busy", "gauge", "1",
    "Share of the last 30 s in which workers made batches, mean over the workers that have reported.", (RANK, ROLE),
)  # fmt: skip
LOADER_READY = Metric(
    "tuimon.loader.ready_batches", "gauge", "{batch}", "Batches that lay ready at a fetch, mean of the last 30 s.",
    (RANK, ROLE),
)  # fmt: skip
LOADER_NONE_READY = Metric(
    "tuimon.loader.none_ready", "gauge", "1", "Share of the fetches of the last 30 s that found no batch ready.",
    (RANK, ROLE),
)  # fmt: skip
LOADER_WAIT = Metric(
    "tuimon.loader.fetch_wait", "gauge", "s", "How long the training waited for a batch, mean of the last 30 s.",
    (RANK, ROLE),
)  # fmt: skip

# -- GPUs, as the driver reports them

GPU_INFO = Metric(
    "tuimon.gpu.info", "gauge", "{gpu}", "Always 1; the labels describe the GPU.", (*_OF_GPU, Label("model"))
)
GPU_USED = Metric("tuimon.gpu.used_by_run", "gauge", "{gpu}", "1 where the run uses the GPU.", _OF_GPU)
GPU_UTILIZATION = Metric(
    "hw.gpu.utilization", "gauge", "1", "Share of time in which some kernel was running, as last read.", _OF_GPU,
    (("hw.gpu.task", "general"),),
)  # fmt: skip
GPU_MEMORY = Metric("hw.gpu.memory.usage", "updown", "By", "GPU memory in use.", _OF_GPU)
GPU_MEMORY_LIMIT = Metric("hw.gpu.memory.limit", "updown", "By", "Size of the GPU memory.", _OF_GPU)
GPU_MEMORY_SHARE = Metric("hw.gpu.memory.utilization", "gauge", "1", "Share of the GPU memory in use.", _OF_GPU)
GPU_POWER = Metric("hw.power", "gauge", "W", "Power of the GPU, mean of the last second.", _OF_GPU, _IS_GPU)
GPU_ENERGY = Metric("hw.energy", "counter", "J", "Energy since the driver was loaded.", _OF_GPU, _IS_GPU)
GPU_TEMPERATURE = Metric("hw.temperature", "gauge", "Cel", "Temperature of the GPU.", _OF_GPU, _IS_GPU)
GPU_ERRORS = Metric(
    "hw.errors", "counter", "{error}", "Uncorrected memory errors since the driver was loaded.", _OF_GPU,
    (*_IS_GPU, ("error.type", "uncorrected_ecc")),
)  # fmt: skip
GPU_POWER_LIMIT = Metric("tuimon.gpu.power_limit", "gauge", "W", "Limit of the GPU's power.", _OF_GPU)
GPU_SM_CLOCK = Metric("tuimon.gpu.sm_clock", "gauge", "Hz", "Clock of the multiprocessors, as last read.", _OF_GPU)
GPU_SM = Metric("tuimon.gpu.sm", "gauge", "1", "Share of the multiprocessors that were busy, as last read.", _OF_GPU)
GPU_OCCUPANCY = Metric(
    "tuimon.gpu.occupancy", "gauge", "1", "Resident warps of the most possible, as last read.", _OF_GPU
)
GPU_TENSOR = Metric(
    "tuimon.gpu.tensor", "gauge", "1", "Share of time in which the tensor pipes were busy, as last read.", _OF_GPU
)
GPU_DRAM = Metric(
    "tuimon.gpu.dram", "gauge", "1", "Memory bandwidth in use of the most possible, as last read.", _OF_GPU
)
GPU_PCIE = Metric(
    "tuimon.gpu.pcie", "gauge", "By/s", "PCIe traffic to the GPU (receive) and from it (transmit), as last read.",
    (*_OF_GPU, Label("direction")),
)  # fmt: skip
GPU_NVLINK = Metric(
    "tuimon.gpu.nvlink", "gauge", "By/s", "NVLink traffic to the GPU (receive) and from it (transmit), as last read.",
    (*_OF_GPU, Label("direction")),
)  # fmt: skip
GPU_THROTTLED = Metric(
    "tuimon.gpu.throttled", "gauge", "1", "Share of the last 30 s in which a cause held the clocks down.",
    (*_OF_GPU, Label("cause")),
)  # fmt: skip
GPU_STEP_ENERGY = Metric(
    "tuimon.gpu.step_energy", "gauge", "J", "Energy of a step: of all GPUs of the first rank, on the first of them.",
    _OF_GPU,
)  # fmt: skip

# -- what the rules find

FINDING = Metric(
    "tuimon.finding", "gauge", "{finding}", "1 for each rule that finds something now; absent otherwise.",
    (RULE, Label("severity")),
)  # fmt: skip
FINDING_SHARE = Metric(
    "tuimon.finding.share", "gauge", "1",
    "Share of the step that a finding takes; where that is idle time of the GPU, at most.", (RULE,),
)  # fmt: skip
FINDING_SPEEDUP = Metric(
    "tuimon.finding.speedup", "gauge", "1", "Step time now by step time with the best fix, as estimated.", (RULE,)
)

# -- tuimon itself

MONITOR_CPU = Metric("tuimon.monitor.cpu", "gauge", "1", "CPU of tuimon with its samplers; 1 is one core.")
MONITOR_MEMORY = Metric("tuimon.monitor.memory", "gauge", "By", "Resident memory of tuimon.")
MONITOR_DROPPED = Metric("tuimon.monitor.records.dropped", "counter", "{record}", "Records lost to a full queue.")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
