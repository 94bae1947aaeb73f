"""The report of a run, from which text, HTML page and JSON are made; these types are the schema of the JSON.

Numbers are as they were measured; JSON rounds them. A field with a default may be absent from JSON.
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

Filled = TypeVar("Filled", bound=Struct)


def filled(kind: type[Filled], source: object, **more: object) -> Filled:
    """A struct with the fields in ``more``, and the others from ``source`` if it has them; rows in lists likewise."""
    values = {}
    for name, written in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        if name in more or hasattr(source, name):
            values[written] = more[name] if name in more else getattr(source, name)
    return msgspec.convert(values, kind, from_attributes=True)


class MemoryLineJson(PlaceJson):
    """A line that allocates."""

    live_bytes: int
    blocks: int
    growth_bytes: float | None = field(name="growth_bytes_per_step")


class MemoryJson(Struct):
    """The memory that torch's allocator held, by line."""

    pid: int
    trigger: str
    device: str
    steps: int
    live_bytes: int
    most_bytes: int | None
    text: list[str]
    lines: list[MemoryLineJson]


class TracedWorkJson(TracedWork, frozen=True, array_like=False):
    """A row of the log, its fields by name."""


class TracedSyncJson(TracedSync, frozen=True, array_like=False):
    """A row of the log, its fields by name."""


class TracedFlopsJson(TracedFlops, frozen=True, array_like=False):
    """A row of the log, its fields by name."""


class TraceJson(Struct):
    """A trace that was taken; times are sums over its steps."""

    pid: int
    rank: int | None
    first_step: int | None
    steps: int
    file: str
    pause_ms: float | None
    gpu_idle: float | None
    text: list[str]
    operators: list[TracedWorkJson]
    kernels: list[TracedWorkJson]
    syncs: list[TracedSyncJson]
    flops: list[TracedFlopsJson] | None  # None where not all of them can be counted


class StandingGroup(Struct):
    """Threads with equal stacks."""

    who: str
    kind: str
    role: str
    ranks: list[int]
    pids: list[int]
    doing: str
    where: PlaceJson | None
    frames: list[PlaceJson]


class StuckCollective(Struct):
    """A collective that did not end, by torch's flight recorder: ranks in it, and ranks that had not reached it.

    ``elsewhere``: ranks in another collective of that number; ``unknown``: ranks without a recorder.
    """

    text: str
    group: str
    number: int
    name: str
    waiting: list[int]
    missing: list[int]
    elsewhere: list[int]
    unknown: list[int]


class StandstillJson(Struct, omit_defaults=True):
    """A time in which nothing moved; ``lasted_s`` is null if it lasted to the end."""

    at_s: float
    step: int | None
    lasted_s: float | None
    taken_after_s: float
    text: str
    groups: list[StandingGroup]
    collectives: list[StuckCollective] = []


class ProgressJson(Progress, frozen=True, omit_defaults=True):
    """The progress of the process in focus."""

    text: str = ""


class GoodputPart(Struct):
    """A part of the wall time: ``training`` is the goodput, ``after`` the time since the last step."""

    name: TimePart
    seconds: float
    share: float


class GoodputJson(Struct):
    """The wall time of the process in focus, from the start of the run; its exclusive parts add up to it."""

    seconds: float
    parts: list[GoodputPart]
    text: str


class Phase(Struct, omit_defaults=True, kw_only=True):
    """Shares of the exclusive phases add to 1; ``eval`` is beside them. ``error``: of an estimated share.

    ``gpu_ms_per_step`` is the span on the GPU's clock, idle time included. The GPU idles in it for ``gpu_idle_ms_low``
    to ``gpu_idle_ms_high``, which are absent without GPU times; ``gpu_idle_ms_per_step`` is null where they are not
    within 5 % of the step.
    """

    name: Literal["data", "forward", "backward", "optimizer", "other", "eval"]
    share: float
    ms_per_step: float | None = field(name="cpu_ms_per_step")
    gpu_ms_per_step: float | None
    gpu_idle_ms_per_step: float | None
    gpu_idle_ms_low: float | None = None
    gpu_idle_ms_high: float | None = None
    estimated: bool
    error: float | None


class NoticeJson(Struct):
    """A source that delivered nothing, or only with gaps."""

    source: str
    level: str
    message: str
    hint: str | None


class NodeJson(Struct):
    """A machine of the run."""

    host: str
    state: str
    behind_s: float | None
    exit_code: int | None


class RunJson(Struct, omit_defaults=True, kw_only=True):
    """The recording: host, command, versions; ``nodes`` of a run on several machines."""

    log: str
    command: list[str]
    mode: str | None
    host: str | None
    started: str | None  # UTC, ISO 8601
    started_unix_s: int | None = None  # the same, in seconds since 1970
    duration_s: float | None
    cpu_count: int | None
    name: str | None = None
    node_count: int = 0
    nodes: list[NodeJson] = []
    versions: dict[str, str]
    ended: bool
    exit_code: int | None
    signal: str | None
    last_line: str | None
    raised_at: PlaceJson | None
    survivors: list[int]
    notices: list[NoticeJson]

    @property
    def has_failed(self) -> bool:
        """True if it is known to have ended by an error or a signal."""
        return bool(self.exit_code or self.signal or self.raised_at)


class RunFacts(Struct, frozen=True, kw_only=True):
    """Facts of one run (of several ranks, those of the one in focus); None if unknown."""

    command: list[str] = field(default_factory=list)
    host: str | None = None
    nodes: int = 1
    cpu_count: int | None = None
    gpus: list[str] = field(default_factory=list)  # names of the GPUs that the run uses on the node in focus
    ranks: int = 1
    batch_size: int | None = None  # of one rank's DataLoader
    workers: int | None = None
    driver: str | None = None  # of NVIDIA's GPUs
    cuda: str | None = None  # version that torch was built for
    torch: str | None = None
    python: str | None = None
    tuimon: str | None = None
    dtypes: list[str] = field(default_factory=list)  # of the parameters
    tf32: bool | None = None
    checkpoints_to: str | None = None  # type of their file system: "nfs4"

    @property
    def gpu_names(self) -> str | None:
        """``2 × H100``: the GPUs' names with the number of each; None without GPUs."""
        counts = Counter(self.gpus)
        return ", ".join(f"{number} × {name}" if number > 1 else name for name, number in counts.items()) or None


class GpuJson(Struct):
    """A GPU or MIG instance: its latest counters, and their means over the steps."""

    host: str | None
    used_by_run: bool
    stale_s: float  # age of ``latest``
    latest: Gpu  # without its processes
    memory_ratio: float | None
    means: GpuMeans | None
    throttled: list[tuple[str, float]]  # (cause, share of the last 30 s), most first
    joules_per_step: float | None  # of all GPUs of the process in focus, on the first of them


class GpuTimeJson(Struct):
    """A process's steps on the GPU's clock: the share of idle time, and how far launches run ahead at each boundary."""

    idle_at_least: float
    idle_at_most: float
    leads: list[LeadRow]


class LoaderWorkerJson(Struct):
    """A DataLoader worker; times are means of a batch. CPU (1: one core) and hottest line: of the process in focus."""

    name: str
    busy_ratio: float | None  # share of time in items or collate
    cpu_ratio: float | None
    items_ms: float | None
    collate_ms: float | None
    wait_ms: float | None  # for the trainer to request a batch
    where: CodePlace | None


class LoaderJson(Struct):
    """A DataLoader over the last 30 s in which it was used."""

    role: str | None
    facts: LoaderFacts  # without the places of its functions
    idle_s: float  # since it was last used
    wait_ms: float | None  # mean of a fetch, as the trainer waits
    wait_p95_ms: float | None
    ready_mean: float | None
    ready_most: int | None
    ready_none_ratio: float | None  # share of fetches that found no batch ready
    busy_ratio: float | None  # mean of the workers
    workers: list[LoaderWorkerJson]


#: Upper bounds of the histogram of steps, in seconds: three a decade, from 0.1 ms to 500 s.
STEP_BOUNDS = tuple(float(f"{digit}e{power}") for power in range(-4, 3) for digit in (1, 2, 5))


class SinceStart(Struct):
    """Sums over all steps of a process, warm-up included: they never fall."""

    steps: int
    dropped: int = field(name="dropped_markers")
    phase_s: dict[str, float]  # "between": of data or forward, which markers cannot separate
    eval_count: int = field(name="eval_iterations")
    gc_s: float | None
    timed_s: float  # length of the steps that were timed ...
    timed_counts: list[int]  # ... and their numbers up to each of ``STEP_BOUNDS``, and beyond the last
    last_step_unix_s: int | None  # exact to one window


#: States of a rank or a node that need no attention.
WELL = ("training", "starting", "ended", "writing", "restarted")


class Rank(Struct, omit_defaults=True, kw_only=True):
    """A training process; fields from ``state`` on are only known if there are several ranks.

    State ``restarted``: another process has taken its rank since.
    """

    pid: int
    host: str | None = None
    rank: int | None
    world_size: int | None
    in_focus: bool = False
    ended_s: float | None = None  # from the start of the run
    markers: bool
    gpus: list[str]
    steps: StepSummary
    phases: list[Phase]
    samples_per_s: float | None = field(name="samples_per_second", default=None)  # of this rank alone
    tokens_per_s: float | None = field(name="tokens_per_second", default=None)
    flops_per_s: float | None = field(name="flops_per_second", default=None)
    mfu_ratio: float | None = field(name="mfu", default=None)
    left_s: float | None = None  # until the run's end
    cpu_ratio: float | None = None  # 1: one core
    rss_bytes: int | None = None
    gpu_time: GpuTimeJson | None = None
    torch_memory: list[TorchMemoryRow] = []
    loaders: list[LoaderJson] = []
    checkpoints: Checkpoints | None = None
    since_start: SinceStart | None = None
    state: str | None = None
    behind: int | None = None  # steps behind the first
    late_ms: float | None = None  # the time by which its own work is longer than the others', a step
    wait_ms: float | None = None  # its wait for the others, a step
    late_ratio: float | None = None  # ``late_ms`` and ``wait_ms`` as shares of its step
    wait_ratio: float | None = None
    restarts: int | None = None
    training: int = 0  # number of its training, if there are several

    @property
    def is_well(self) -> bool:
        """True if its state needs no attention."""
        return self.state is None or self.state in WELL

    @property
    def phase_shares(self) -> dict[str, float]:
        return {phase.name: phase.share for phase in self.phases}

    @property
    def phase_errors(self) -> dict[str, float | None]:
        """The error of its share, by phase; only of estimated shares."""
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
    """One of several trainings side by side; the report is of the one in focus. ``pid``: of its first rank."""

    number: int
    in_focus: bool
    ranks: int
    pid: int
    command: list[str]
    steps: StepSummary
    findings: list[TrainingFinding]  # at most three, the most important first


class RankShare(Struct):
    """A phase's median share over all ranks."""

    name: str
    share: float


class RanksSummary(Struct):
    """Least, median and most over all ranks, if there are more than 16."""

    count: int
    steps: list[float] | None
    median_ms: list[float] | None
    phases: list[RankShare]


class StateJson(Struct):
    """The last state of the training; while it is still starting, there are no phases, and only findings about harm."""

    name: str
    for_s: float | None
    doing: str | None
    doing_for_s: float | None
    where: PlaceJson | None
    backwards: int | None
    text: str


class UnseenJson(Unseen, frozen=True):
    """A process that works like a training and shows no step."""

    text: str


class SpanJson(Struct):
    """The steps that phases and findings cover."""

    first_step: int
    last_step: int
    seconds: float | None


class SamplingJson(Struct):
    """Stack samples over the run; ``coverage`` and ``cpu`` are ratios."""

    rate_hz: float | None
    coverage_ratio: float | None = field(name="coverage")
    samples: int
    failed: int = field(name="failed_samples")
    lost: int = field(name="lost_windows")
    cpu_ratio: float | None = field(name="cpu")
    text: str


class Report(Struct, omit_defaults=True, kw_only=True):
    """One run. With ``--brief`` it is cut to 6 kB; ``left_out`` then counts the rows that each list lacks."""

    schema: Literal[1]
    summary: str  # three sentences
    run: RunJson
    facts: RunFacts
    gpus: list[GpuJson] = []
    trainings: list[Training] = []  # if there are several
    ranks: list[Rank]
    ranks_summary: RanksSummary | None = None
    state: StateJson
    unseen: list[UnseenJson]
    steps: StepSummary
    progress: ProgressJson | None = None
    goodput: GoodputJson | None = None
    span: SpanJson | None
    phases_of: str = ""  # the rank or training with these steps, phases and ranges, if there are several
    phases: list[Phase]
    ranges: list[RangeRow]
    sampling: SamplingJson | None
    cost: Cost | None = None  # the latest
    memory: list[MemoryJson] = []
    traces: list[TraceJson] = []
    standstills: list[StandstillJson] = []
    findings: list[FindingJson]  # the most important first
    changes: list[VerdictChange]
    unjudged: list[Unjudged]
    left_out: dict[str, int] = {}

    @property
    def focus(self) -> Rank | None:
        """The process in focus; None before any."""
        return next((rank for rank in self.ranks if rank.in_focus), None)

    @property
    def has_steps(self) -> bool:
        """True if steps were counted, or samples show their phases: without a step there is no verdict."""
        return bool(self.steps.total or self.phases)
