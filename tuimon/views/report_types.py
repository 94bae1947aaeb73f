"""The report of a run, which all its forms read: text, page, and JSON, whose schema these types are.

Numbers are as they were measured; JSON rounds them. A field with a default may be absent from JSON.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from tuimon.diagnosis.finding import Finding, Severity, finding_json
from tuimon.records import Frame, Place, TracedFlops, TracedSync, TracedWork
from tuimon.session.state import Part

Filled = TypeVar("Filled", bound=Struct)
Value = TypeVar("Value")
Absent = UnsetType  # of a field that may be null, too


def filled(kind: type[Filled], source: object, **more: object) -> Filled:
    """A struct of this kind: ``more``, and of its other fields those that ``source`` has; rows in lists likewise."""
    values = {}
    for name, written in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        if name in more or hasattr(source, name):
            values[written] = more[name] if name in more else getattr(source, name)
    return msgspec.convert(values, kind, from_attributes=True)


def known(value: Value | UnsetType) -> Value | None:
    """The value of a field; None where it is absent."""
    return None if isinstance(value, UnsetType) else value


class MemoryLineJson(Struct):
    """A line that allocates."""

    file: str
    line: int
    function: str
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


class PlaceJson(Struct):
    """A line of code."""

    file: str
    line: int
    function: str

    @classmethod
    def of(cls, place: Place | Frame | None) -> PlaceJson | None:
        """The place; None where it is not known."""
        return cls(place.file, place.line, place.function) if place is not None else None


class CodePlace(PlaceJson):
    """A line of code with its text, if the log has it."""

    source: str | None


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
    """A collective that did not end, by torch's flight recorder: ranks in it, and ranks that had not come to it.

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
    """Nothing moved; ``lasted_s`` is null where it went on to the end."""

    at_s: float
    step: int | None
    lasted_s: float | None
    taken_after_s: float
    text: str
    groups: list[StandingGroup]
    collectives: list[StuckCollective] = []


class FixJson(Struct):
    """A fix; gains are step time now / then, as estimated, at least and at most."""

    action: str
    estimated_speedup: float | None
    low: float | None
    high: float | None


class FindingJson(Struct):
    """A verdict of one rule; ``action`` and ``estimated_speedup`` are of the best fix."""

    rule: str
    severity: Severity
    headline: str
    share_of_step: float | None
    cause: str | None
    where: list[CodePlace]
    evidence: dict[str, float | int | str | None]
    fixes: list[FixJson]
    action: str
    estimated_speedup: float | None
    speedup_at_least: float | None

    @classmethod
    def of(cls, finding: Finding) -> FindingJson:
        """The finding as reports have it."""
        return msgspec.convert(finding_json(finding), cls)


class StepsJson(Struct, omit_defaults=True):
    """Steps that were measured; of fast loops not all are timed."""

    total: int = field(name="count")
    median_ms: float | None
    p95_ms: float | None
    per_second: float | None
    dropped: int = field(name="dropped_markers")
    timed_ratio: float | None = field(name="timed_share", default=None)  # absent where all are


class Progress(Struct, omit_defaults=True):
    """How far the run had come: what its loader, its Trainer or its output says, the rest is absent.

    Rates are of the whole run; of one that has not ended, of the last 30 s. Samples and tokens are those of all
    ``ranks`` that load data, tokens without padding, if a mask shows it. ``left_s``: by that pace.
    ``flops_per_second``: of one process, by the shapes in its latest trace; ``mfu``: its share of the GPU's dense peak.
    """

    samples_per_s: float | None = field(name="samples_per_second", default=None)
    tokens_per_s: float | None = field(name="tokens_per_second", default=None)
    ranks: int = 1
    flops_per_s: float | None = field(name="flops_per_second", default=None)
    mfu_ratio: float | None = field(name="mfu", default=None)
    padding_ratio: float | None = field(name="padding", default=None)  # of the positions in batches of text
    step: int | None = None
    steps: int | None = None  # that the Trainer makes in all
    epochs_done: int | None = None
    epochs: int | None = None
    batch: int | None = None  # of the epoch under way
    batches: int | None = None
    left_s: float | None = None
    left_of: Literal["run", "epoch"] | None = None
    loss: str | None = None  # as printed
    text: str = ""


class GoodputPart(Struct):
    """A part of the wall time: ``training`` is the goodput, ``after`` the time since the last step."""

    name: Part
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
    gpu_idle_ms_per_step: float | Absent | None = UNSET  # of a rank only in the full report
    gpu_idle_ms_low: float | None = None
    gpu_idle_ms_high: float | None = None
    estimated: bool | Absent = UNSET
    error: float | Absent | None = UNSET


class NoticeJson(Struct):
    """A source that delivered nothing, or with gaps."""

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
    """The recording: host, command, versions; ``name`` and nodes of a run on several machines."""

    log: str
    command: list[str]
    mode: str | None
    host: str | None
    started: str | None  # UTC, ISO 8601
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


#: States of a rank or a node that are no news.
WELL = ("training", "starting", "ended", "writing", "restarted")


class Rank(Struct, omit_defaults=True, kw_only=True):
    """A training process; from ``state`` on among several ranks, ``restarted``: another process has its rank since."""

    pid: int
    host: str | None = None
    rank: int | None
    world_size: int | None
    markers: bool
    gpus: list[str]
    steps: StepsJson
    phases: list[Phase]
    state: str | None = None
    late_ms: float | Absent | None = UNSET  # by how much its own work is longer than the others', a step
    wait_ms: float | Absent | None = UNSET  # for which it waits for them
    restarts: int = 0
    training: int = 0  # number of the one it belongs to, of several

    @property
    def is_well(self) -> bool:
        """True if its state is no news."""
        return self.state is None or self.state in WELL

    @property
    def trouble(self) -> tuple[bool, float]:
        """Sorts ranks: those that are not well come first, then the latest."""
        return self.is_well, -(known(self.late_ms) or 0.0)


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
    steps: StepsJson
    findings: list[TrainingFinding]  # at most three, the most important first


class RankShare(Struct):
    """A phase's median share over all ranks."""

    name: str
    share: float


class RanksSummary(Struct):
    """Least, median and most of more than 16 ranks."""

    count: int
    steps: list[float] | None
    median_ms: list[float] | None
    phases: list[RankShare]


class StateJson(Struct):
    """The last state of the training: while it only starts, there are no phases, and no findings except of harm."""

    name: str
    for_s: float | None
    doing: str | None
    doing_for_s: float | None
    where: PlaceJson | None
    backwards: int | None
    text: str


class UnseenJson(Struct):
    """A process that works like a training and shows no step."""

    pid: int
    command: str
    cores: float | None
    on_gpu: bool
    reason: str
    text: str


class SpanJson(Struct):
    """The steps that phases and findings are of."""

    first_step: int
    last_step: int
    seconds: float | None


class RangeJson(Struct):
    """A user range, per step."""

    path: str
    phase: str
    per_step: float | None
    ms_per_step: float | None = field(name="cpu_ms_per_step")
    share: float | None


class SamplingJson(Struct):
    """Stack samples over the run; ``coverage`` and ``cpu`` are ratios."""

    rate_hz: float | None
    coverage_ratio: float | None = field(name="coverage")
    samples: int
    failed: int = field(name="failed_samples")
    lost: int = field(name="lost_windows")
    cpu_ratio: float | None = field(name="cpu")
    text: str


class ChangeJson(Struct):
    """The first verdict changed, at a step and a time since the beginning."""

    at_s: float | None
    step: int | None
    before: str | None = field(name="from")
    after: str | None = field(name="to")


class UnjudgedJson(Struct):
    """A rule that had nothing to judge by."""

    rule: str
    reason: str


class Report(Struct, omit_defaults=True, kw_only=True):
    """One run. Without ``--full`` it is cut to 6 kB; ``left_out`` then counts the rows that each list lacks."""

    schema: Literal[1]
    summary: str  # three sentences
    run: RunJson
    trainings: list[Training] = []  # of several
    ranks: list[Rank]
    ranks_summary: RanksSummary | None = None
    state: StateJson
    unseen: list[UnseenJson]
    steps: StepsJson
    progress: Progress | None = None
    goodput: GoodputJson | None = None
    span: SpanJson | None
    phases_of: str = ""  # of several ranks or trainings the one whose steps, phases and ranges these are
    phases: list[Phase]
    ranges: list[RangeJson]
    sampling: SamplingJson | None
    memory: list[MemoryJson] = []
    traces: list[TraceJson] = []
    standstills: list[StandstillJson] = []
    findings: list[FindingJson]  # the most important first
    changes: list[ChangeJson]
    unjudged: list[UnjudgedJson]
    left_out: dict[str, int] = {}

    @property
    def has_steps(self) -> bool:
        """True if steps were counted, or samples show their phases: without a step there is no verdict."""
        return bool(self.steps.total or self.phases)
