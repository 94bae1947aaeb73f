"""The types of ``report --format json``: what its schema is made of. A field with a default may be absent."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from tuimon.diagnosis.finding import Severity
from tuimon.session.goodput import Part

TracedRow = dict[str, str | int | float | bool | None]


class MemoryLineJson(Struct):
    """A line that allocates."""

    file: str
    line: int
    function: str
    live_bytes: int
    blocks: int
    growth_bytes_per_step: float | None


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
    operators: list[TracedRow]  # fields of the log's TracedWork
    kernels: list[TracedRow]
    syncs: list[TracedRow]  # of TracedSync
    flops: list[TracedRow] | None  # of TracedFlops; None where not all of them can be counted


Absent = UnsetType  # a field that may be absent


class PlaceJson(Struct):
    """A line of code."""

    file: str
    line: int
    function: str


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


class StandstillJson(Struct):
    """Nothing moved; ``lasted_s`` is null where it went on to the end."""

    at_s: float
    step: int | None
    lasted_s: float | None
    taken_after_s: float
    text: str
    groups: list[StandingGroup]
    collectives: list[StuckCollective] | Absent = UNSET


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


class StepsJson(Struct):
    """``timed_share``: of fast loops not all steps are timed."""

    count: int
    median_ms: float | None
    p95_ms: float | None
    per_second: float | None
    dropped_markers: int
    timed_share: float | Absent | None = UNSET


class Progress(Struct):
    """How far the run had come: what its loader, its Trainer or its output says, the rest is absent.

    Rates are of the whole run; of one that has not ended, of the last 30 s. Samples and tokens are those of all
    ``ranks`` that load data, tokens without padding, if a mask shows it. ``left_s``: by that pace.
    ``flops_per_second``: of one process, by the shapes in its latest trace; ``mfu``: its share of the GPU's dense peak.
    """

    samples_per_second: float | Absent = UNSET
    tokens_per_second: float | Absent = UNSET
    ranks: int | Absent = UNSET  # where they are several
    flops_per_second: float | Absent = UNSET
    mfu: float | Absent = UNSET
    padding: float | Absent = UNSET  # share of the positions in batches of text
    step: int | Absent = UNSET
    steps: int | Absent = UNSET  # that the Trainer makes in all
    epochs_done: int | Absent = UNSET
    epochs: int | Absent = UNSET
    batch: int | Absent = UNSET  # of the epoch under way
    batches: int | Absent = UNSET
    left_s: float | Absent = UNSET
    left_of: Literal["run", "epoch"] | Absent = UNSET
    loss: str | Absent = UNSET  # as printed
    text: str | Absent = UNSET


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


class Phase(Struct):
    """Shares of the exclusive phases add to 1; ``eval`` is beside them. ``error``: of an estimated share.

    ``gpu_ms_per_step`` is the span on the GPU's clock, idle time included. The GPU idles in it for ``gpu_idle_ms_low``
    to ``gpu_idle_ms_high``, which are absent without GPU times; ``gpu_idle_ms_per_step`` is null where they are not
    within 5 % of the step.
    """

    name: Literal["data", "forward", "backward", "optimizer", "other", "eval"]
    share: float
    cpu_ms_per_step: float | None
    gpu_ms_per_step: float | None
    gpu_idle_ms_per_step: float | Absent | None = UNSET  # of a rank only in the full report
    gpu_idle_ms_low: float | Absent = UNSET
    gpu_idle_ms_high: float | Absent = UNSET
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


class RunJson(Struct):
    """The recording: host, command, versions; ``name`` and nodes of a run on several machines."""

    log: str
    command: list[str]
    mode: str | None
    host: str | None
    started: str | None  # UTC, ISO 8601
    duration_s: float | None
    cpu_count: int | None
    versions: dict[str, str]
    ended: bool
    exit_code: int | None
    signal: str | None
    last_line: str | None
    raised_at: PlaceJson | None
    survivors: list[int]
    notices: list[NoticeJson]
    name: str | Absent | None = UNSET
    node_count: int | Absent = UNSET
    nodes: list[NodeJson] | Absent = UNSET


class Rank(Struct):
    """A training process; from ``state`` on among several ranks, ``restarted``: another process has its rank since."""

    pid: int
    rank: int | None
    world_size: int | None
    markers: bool
    gpus: list[str]
    steps: StepsJson
    phases: list[Phase]
    host: str | Absent | None = UNSET
    state: str | Absent = UNSET
    late_ms: float | Absent | None = UNSET
    wait_ms: float | Absent | None = UNSET
    restarts: int | Absent = UNSET
    training: int | Absent = UNSET  # number of the one it belongs to, of several


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
    share: float | None


class RanksSummary(Struct):
    """Least, median and most of more than 16 ranks."""

    count: int
    steps: list[float | None] | None
    median_ms: list[float | None] | None
    phases: list[RankShare]


class StateJson(Struct):
    """The last state of the training."""

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
    cpu_ms_per_step: float | None
    share: float | None


class SamplingJson(Struct):
    """Stack samples over the run; ``coverage`` and ``cpu`` are ratios."""

    rate_hz: float | None
    coverage: float | None
    samples: int
    failed_samples: int
    lost_windows: int
    cpu: float | None
    text: str


class ChangeJson(Struct):
    """The first verdict changed, at a step and a time since the beginning."""

    at_s: float | None
    step: int | None
    before: str | None = msgspec.field(name="from")
    after: str | None = msgspec.field(name="to")


class UnjudgedJson(Struct):
    """A rule that had nothing to judge by."""

    rule: str
    reason: str


class Report(Struct):
    """One run. Without ``--full`` it is cut to 6 kB; ``left_out`` then counts the rows that each list lacks."""

    schema: Literal[1]
    summary: str  # three sentences
    run: RunJson
    ranks: list[Rank]
    state: StateJson
    unseen: list[UnseenJson]
    steps: StepsJson
    span: SpanJson | None
    phases: list[Phase]
    ranges: list[RangeJson]
    sampling: SamplingJson | None
    findings: list[FindingJson]  # the most important first
    changes: list[ChangeJson]
    unjudged: list[UnjudgedJson]
    progress: Progress | Absent = UNSET
    goodput: GoodputJson | Absent = UNSET
    phases_of: str | Absent = UNSET  # of several ranks or trainings the one whose steps, phases and ranges these are
    trainings: list[Training] | Absent = UNSET  # of several
    ranks_summary: RanksSummary | Absent = UNSET
    memory: list[MemoryJson] | Absent = UNSET
    traces: list[TraceJson] | Absent = UNSET
    standstills: list[StandstillJson] | Absent = UNSET
    left_out: dict[str, int] | Absent = UNSET
