"""The report of a run, from which text, HTML page and JSON are made; these types are the schema of the JSON.

Numbers are unrounded here; JSON rounds them. None: not measured. A field with a default may be absent from JSON.
The *process in focus* is the one that a report is about if it has to choose: rank 0, or what the user selected.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct, field

from tuimon.diagnosis.finding import CodePlace, FindingJson, PlaceJson, Unjudged, VerdictChange
from tuimon.records import Cost, Gpu, LoaderFacts, TracedFlops, TracedSync, TracedWork
from tuimon.session.gpu_time import LeadRow, TorchMemoryRow
from tuimon.session.gpus import GpuMeans
from tuimon.session.phase_table import RangeRow
from tuimon.session.progress import Progress
from tuimon.session.stacks.set_up import Checkpoints
from tuimon.session.state import TimePart, Unseen
from tuimon.session.steps import StepSummary
from tuimon.threshold import REPORTED

Filled = TypeVar("Filled", bound=Struct)


def filled(kind: type[Filled], source: object, **more: object) -> Filled:
    """A ``kind`` with the fields in ``more``; all others come from the attributes of ``source``, if it has them."""
    values = {}
    for name, written in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        if name in more or hasattr(source, name):
            values[written] = more[name] if name in more else getattr(source, name)
    return msgspec.convert(values, kind, from_attributes=True)


class MemoryLineJson(PlaceJson):
    """A line that allocates memory, with the part that is still in use."""

    live_bytes: int
    blocks: int
    growth_bytes: float | None = field(name="growth_bytes_per_step")  # None: history of a single step


class MemoryJson(Struct):
    """Memory that torch's allocator handed out over some steps and had not got back, by line."""

    pid: int
    trigger: str  # "asked", or "oom": an allocation failed
    device: str  # "cpu", "cuda:0"
    steps: int  # 0 after "oom": all since the first backward pass
    live_bytes: int
    most_bytes: int | None  # the most held at one time
    text: list[str]  # the same in words, one line each
    lines: list[MemoryLineJson]  # most bytes first


class TracedWorkJson(TracedWork, frozen=True, array_like=False):
    """A row of the log, its fields by name."""


class TracedSyncJson(TracedSync, frozen=True, array_like=False):
    """A row of the log, its fields by name."""


class TracedFlopsJson(TracedFlops, frozen=True, array_like=False):
    """A row of the log, its fields by name."""


class TraceJson(Struct):
    """A trace of torch.profiler; times are sums over its steps."""

    pid: int
    rank: int | None
    first_step: int | None
    steps: int
    file: str  # the whole trace
    pause_ms: float | None  # for how long the training waited while the profiler stopped and wrote
    gpu_idle: float | None  # share of the traced time in which the GPU had nothing to do
    text: list[str]  # the same in words, one line each
    operators: list[TracedWorkJson]
    kernels: list[TracedWorkJson]
    syncs: list[TracedSyncJson]
    flops: list[TracedFlopsJson] | None  # None if not all of them can be counted


class StandingGroup(Struct):
    """Threads with equal stacks."""

    who: str  # in words: "ranks 0 and 1"
    kind: str  # "batch" or "ranks" if they wait for these, "own" if for anything else or not at all, "stopped" ...
    role: str  # "rank" (its training thread), "worker", "thread" (any other)
    ranks: list[int]  # a worker has the rank of its trainer
    pids: list[int]
    doing: str  # the call in which they are: "all_reduce()", "backward()"
    where: PlaceJson | None  # innermost line of user code
    frames: list[PlaceJson]  # the stack, root first


class StuckCollective(Struct):
    """A collective that did not end, by torch's flight recorder, with the ranks that were in it and that were not."""

    text: str
    group: str  # the process group
    number: int  # of the collective, as its group counts
    name: str  # "all_reduce"
    waiting: list[int]  # ranks that have entered it
    missing: list[int]  # ranks that have not reached it
    elsewhere: list[int]  # ranks that entered another collective under this number
    unknown: list[int]  # ranks without a flight recorder


class StandstillJson(Struct, omit_defaults=True):
    """A time in which no training process moved."""

    at_s: float  # its beginning, from the start of the run
    step: int | None  # the step that it interrupted
    lasted_s: float | None  # null if it lasted to the end of the run
    taken_after_s: float  # when stacks were taken, from its beginning
    text: str
    groups: list[StandingGroup]
    collectives: list[StuckCollective] = []


class ProgressJson(Progress, frozen=True, omit_defaults=True):
    """The progress of the process in focus."""

    text: str = ""


class GoodputPart(Struct):
    """A part of the wall time: ``training`` is the goodput, ``after`` is the time since the last step."""

    name: TimePart
    seconds: float
    share: float


class GoodputJson(Struct):
    """The wall time of the process in focus, from the start of the run; its exclusive parts add up to it."""

    seconds: float
    parts: list[GoodputPart]
    text: str


class Phase(Struct, omit_defaults=True, kw_only=True):
    """A phase of the mean step. The shares add up to 1, except ``eval``, which is not part of a step."""

    name: Literal["data", "forward", "backward", "optimizer", "other", "eval"]
    share: float
    ms_per_step: float | None = field(name="cpu_ms_per_step")
    gpu_ms_per_step: float | None  # its length on the GPU's clock, idle time included
    gpu_idle_ms_per_step: float | None  # GPU idle time in it; null if its bounds are over 5 % of a step apart
    gpu_idle_ms_low: float | None = None  # lower bound of the GPU idle time; absent without GPU times
    gpu_idle_ms_high: float | None = None  # upper bound, likewise
    estimated: bool  # by stack samples
    error: float | None  # of an estimated share: how far it may be off, up or down


class NoticeJson(Struct):
    """The latest notice of a source: why it delivers nothing, what it lost, or that it works again."""

    source: str
    level: str
    message: str
    hint: str | None


class NodeJson(Struct):
    """A machine of a run on several."""

    host: str
    state: str  # "writing", "late", "stopped" or "ended", by its log
    behind_s: float | None  # how much older its latest record is than the newest of any machine
    exit_code: int | None  # null until the command there has ended


class RunJson(Struct, omit_defaults=True, kw_only=True):
    """The recording of a run: its command, its machine, its end."""

    log: str  # name of the log
    command: list[str]
    mode: str | None  # "run" or "attach"
    host: str | None
    started: str | None  # UTC, ISO 8601
    started_unix_s: int | None = None  # the same, in seconds since 1970
    duration_s: float | None
    cpu_count: int | None
    name: str | None = None  # of a run on several machines: --run NAME, or the scheduler's id
    node_count: int = 0  # 0 if the log is of one machine
    nodes: list[NodeJson] = []
    versions: dict[str, str]  # of tuimon, Python, py-spy, the driver
    ended: bool  # True if the log has the end of the run
    exit_code: int | None
    signal: str | None  # such as "SIGKILL"
    last_line: str | None  # the exception that ended it, the last line of its traceback
    raised_at: PlaceJson | None  # where that exception came from
    survivors: list[int]  # pids of the run that were still alive
    notices: list[NoticeJson]

    @property
    def has_failed(self) -> bool:
        """True if it is known to have ended by an error or a signal."""
        return bool(self.exit_code or self.signal or self.raised_at)


class RunFacts(Struct, frozen=True, kw_only=True):
    """Facts of one run, from its process in focus; ``diff`` compares those of two runs. None if unknown."""

    command: list[str] = field(default_factory=list)
    host: str | None = None
    nodes: int = 1
    cpu_count: int | None = None
    gpus: list[str] = field(default_factory=list)  # names of the GPUs that the run uses on the node in focus
    ranks: int = 1
    batch_size: int | None = None  # of one rank's DataLoader
    workers: int | None = None
    driver: str | None = None  # version of NVIDIA's driver
    cuda: str | None = None  # version of CUDA that torch was built for
    torch: str | None = None
    python: str | None = None
    tuimon: str | None = None
    dtypes: list[str] = field(default_factory=list)  # dtypes of the parameters
    tf32: bool | None = None  # True if float32 matrix products may use TF32
    checkpoints_to: str | None = None  # type of the checkpoints' file system: "nfs4"

    @property
    def gpu_names(self) -> str | None:
        """``2 × H100``: the GPUs' names with the number of each; None if there are no GPUs."""
        counts = Counter(self.gpus)
        return ", ".join(f"{number} × {name}" if number > 1 else name for name, number in counts.items()) or None


class GpuJson(Struct):
    """A GPU or MIG instance: its latest counters, and their means over the steps."""

    host: str | None
    used_by_run: bool
    stale_s: float  # age of ``latest`` at the end of the log
    latest: Gpu  # without its processes
    memory_ratio: float | None  # share of its memory in use, at most in the steps
    means: GpuMeans | None
    throttled: list[tuple[str, float]]  # (cause, share of the steps' time that it held the clocks down), most first
    joules_per_step: float | None  # sum over the GPUs of the process in focus, given at the first of them


class GpuTimeJson(Struct):
    """A process's steps on the GPU's clock."""

    idle_at_least: float  # share of the time in which the GPU had nothing to do, lower bound
    idle_at_most: float  # the same, upper bound
    leads: list[LeadRow]  # how far launches run ahead of the GPU, in the order of the loop


class LoaderWorkerJson(Struct):
    """A DataLoader worker; times are means per batch."""

    name: str
    busy_ratio: float | None  # share of time in which it makes a batch
    cpu_ratio: float | None  # 1: one core; null if its trainer is not the process in focus
    items_ms: float | None  # in the dataset
    collate_ms: float | None  # in collate_fn
    wait_ms: float | None  # waiting for the trainer to request a batch
    where: CodePlace | None  # its hottest line; null if its trainer is not the process in focus


class LoaderJson(Struct):
    """A DataLoader over the last 30 s in which it was used."""

    role: str | None  # "train" or "eval"
    facts: LoaderFacts  # without the places of its functions
    idle_s: float  # time since it was last used
    wait_ms: float | None  # time the trainer waits in a fetch, mean
    wait_p95_ms: float | None  # the same, 95th percentile
    ready_mean: float | None  # batches ready at a fetch, mean
    ready_most: int | None  # the most that can be ready
    ready_none_ratio: float | None  # share of fetches that found no batch ready
    busy_ratio: float | None  # mean over the workers
    workers: list[LoaderWorkerJson]


#: Upper bounds of the histogram of steps, in seconds: three a decade, from 0.1 ms to 500 s.
STEP_BOUNDS = tuple(float(f"{digit}e{power}") for power in range(-4, 3) for digit in (1, 2, 5))


class SinceStart(Struct):
    """Sums over all steps of a process, warm-up included, which never decrease."""

    steps: int
    dropped: int = field(name="dropped_markers")  # overwritten before tuimon read them
    phase_s: dict[str, float]  # "between": time that markers cannot assign to data or forward
    eval_count: int = field(name="eval_iterations")
    gc_s: float | None  # pauses of the garbage collector
    timed_s: float  # length of all timed steps
    timed_counts: list[int]  # histogram of the timed steps: those up to each of ``STEP_BOUNDS``, and the longer ones
    last_step_unix_s: int | None  # when the last step ended, within one window


#: States of a rank or a node that need no attention.
WELL = ("training", "starting", "ended", "writing", "restarted")


class Rank(Struct, omit_defaults=True, kw_only=True):
    """A training process; ``state`` and the fields below it are only given if there are several ranks."""

    pid: int
    host: str | None = None
    rank: int | None
    world_size: int | None
    in_focus: bool = False
    ended_s: float | None = None  # when it ended, from the start of the run; absent while it runs
    markers: bool  # True if its hooks were read; without them its steps are estimated by stack samples
    gpus: list[str]  # UUIDs of the GPUs that it uses
    steps: StepSummary
    phases: list[Phase]
    samples_per_s: float | None = field(name="samples_per_second", default=None)  # of this rank alone
    tokens_per_s: float | None = field(name="tokens_per_second", default=None)
    flops_per_s: float | None = field(name="flops_per_second", default=None)
    mfu_ratio: float | None = field(name="mfu", default=None)
    left_s: float | None = None  # estimated time to the end of the run
    cpu_ratio: float | None = None  # 1: one core
    rss_bytes: int | None = None  # resident memory
    gpu_time: GpuTimeJson | None = None
    torch_memory: list[TorchMemoryRow] = []
    loaders: list[LoaderJson] = []
    checkpoints: Checkpoints | None = None
    since_start: SinceStart | None = None
    state: str | None = None  # such as "training", "lost"; "restarted": another process has taken its rank since
    behind: int | None = None  # steps behind the rank that is furthest
    late_ms: float | None = None  # how much longer its own work takes per step than that of the others
    wait_ms: float | None = None  # how long it waits for the others per step
    late_ratio: float | None = None  # ``late_ms`` and ``wait_ms`` as shares of its step
    wait_ratio: float | None = None
    restarts: int | None = None  # how often its rank was started again
    training: int = 0  # number of the training that it belongs to, if there are several

    @property
    def is_well(self) -> bool:
        """True if its state needs no attention."""
        return self.state is None or self.state in WELL

    @property
    def is_late(self) -> bool:
        """True if others wait for it for as large a share of its step as a verdict reports."""
        return (self.late_ratio or 0.0) >= REPORTED

    @property
    def phase_shares(self) -> dict[str, float]:
        return {phase.name: phase.share for phase in self.phases}

    @property
    def phase_errors(self) -> dict[str, float | None]:
        """The error of each estimated share, by phase."""
        return {phase.name: phase.error for phase in self.phases if phase.estimated}

    @property
    def trouble(self) -> tuple[bool, float]:
        """Sort key: ranks in trouble come first, then the latest ones."""
        return self.is_well, -(self.late_ms or 0.0)


class TrainingFinding(Struct):
    """A finding in one of several trainings."""

    rule: str
    severity: str
    cause: str | None
    headline: str


class Training(Struct):
    """One of several trainings side by side; the rest of the report is about the one in focus."""

    number: int
    in_focus: bool
    ranks: int  # how many it has
    pid: int  # of its first rank
    command: list[str]
    steps: StepSummary
    findings: list[TrainingFinding]  # at most three, the most important first


class RankShare(Struct):
    """A phase's median share over all ranks."""

    name: str
    share: float


class RanksSummary(Struct):
    """Summary of more than 16 ranks; lists hold minimum, median and maximum."""

    count: int  # ranks
    steps: list[float] | None  # steps of a rank
    median_ms: list[float] | None  # median step of a rank
    phases: list[RankShare]


class StateJson(Struct):
    """The last state of the training; while it is starting, there are no phases, and only findings about harm."""

    name: str  # "starting", "training", "waiting", "ended", "unseen" (no step was seen), "step_open" ...
    for_s: float | None  # how long it has been in this state
    doing: str | None  # its activity: "importing transformers"
    doing_for_s: float | None
    where: PlaceJson | None  # the line of user code
    backwards: int | None  # backward passes so far of a step that has not ended
    text: str


class UnseenJson(Unseen, frozen=True):
    """A process that works like a training but shows no step."""

    text: str  # the same in words


class SpanJson(Struct):
    """The steps that phases and findings cover."""

    first_step: int
    last_step: int
    seconds: float | None


class SamplingJson(Struct):
    """Stack samples over the run."""

    rate_hz: float | None  # achieved while it samples
    coverage_ratio: float | None = field(name="coverage")  # share of the run in which stacks were sampled
    samples: int
    failed: int = field(name="failed_samples")  # samples that could not be read
    lost: int = field(name="lost_windows")  # windows in which py-spy failed
    cpu_ratio: float | None = field(name="cpu")  # cost of sampling; 1: one core
    text: str  # the same in words


class Report(Struct, omit_defaults=True, kw_only=True):
    """The report of one run. With ``--brief`` its JSON is cut to 6 kB."""

    schema: Literal[1]
    summary: str  # the run in three sentences
    run: RunJson
    facts: RunFacts
    gpus: list[GpuJson] = []
    trainings: list[Training] = []  # empty if there is only one
    ranks: list[Rank]
    ranks_summary: RanksSummary | None = None
    state: StateJson
    unseen: list[UnseenJson]
    steps: StepSummary
    progress: ProgressJson | None = None
    goodput: GoodputJson | None = None
    span: SpanJson | None
    phases_of: str = ""  # which rank or training the steps, phases and ranges are of, if there are several
    phases: list[Phase]
    ranges: list[RangeRow]
    sampling: SamplingJson | None
    cost: Cost | None = None  # the latest use by tuimon itself
    memory: list[MemoryJson] = []
    traces: list[TraceJson] = []
    standstills: list[StandstillJson] = []
    findings: list[FindingJson]  # the most important first
    changes: list[VerdictChange]  # each time that another finding became the first
    unjudged: list[Unjudged]  # rules that could not judge, with the reason
    left_out: dict[str, int] = {}  # with ``--brief``: rows that were cut, by list

    @property
    def focus(self) -> Rank | None:
        """The process in focus; None if there is none yet."""
        return next((rank for rank in self.ranks if rank.in_focus), None)

    @property
    def has_steps(self) -> bool:
        """True if steps were counted, or samples show their phases. Without a step there is no verdict."""
        return bool(self.steps.total or self.phases)
