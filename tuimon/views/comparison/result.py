"""The result of a comparison, which ``diff --format json`` writes: its field names are a contract."""

from __future__ import annotations

from typing import Literal

import msgspec

from tuimon.diagnosis.cells import CellPhase, Doing, Via
from tuimon.views.report_types import RunFacts

Unit = Literal["ms", "1/s", "bytes", "bytes/s", "%", "1"]
#: A measured gain, compared with its estimate: within it, more, less, or not measured well enough.
Kept = Literal["kept", "more", "less", "unclear"]
#: The fate of a finding in the later runs.
Became = Literal["gone", "new", "stays"]
#: ``same``: no difference that matters; ``unclear``: there may be a difference or none, the data do not show it.
Outcome = Literal["faster", "slower", "same", "unclear"]


#: ``void``: the steps are not the same work, or not on the same machine, and cannot be compared. ``per sample``: steps
#: differ in their number of samples, so the time per sample is compared. ``said``: the fact is only mentioned.
Effect = Literal["said", "per sample", "void"]


class Unlike(msgspec.Struct, frozen=True):
    """A fact that differs between the sides: its name, both values as text, its effect on the comparison."""

    name: str
    before: str
    after: str
    effect: Effect = "said"


class Range(msgspec.Struct, frozen=True):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


class Row(msgspec.Struct, frozen=True):
    """One quantity of a step or of the run, on both sides."""

    name: str
    unit: Unit
    before: float | None
    after: float | None
    difference: float | None = None  # after - before, in ``unit``
    low: float | None = None  # 95 % interval of ``difference``; None if single runs do not show how it varies
    high: float | None = None
    significant: bool | None = None  # True if it is more than chance, given the number of rows; None: no interval
    estimated: bool = False  # by stack samples


class LineChange(msgspec.Struct, frozen=True):
    """Time of a step that is of one kind and in one function, with the line that has most of it in the later run.

    A wait counts at its cause: the line is then that of the process or thread that was waited for, such as a worker,
    and ``via`` names the wait. If ``file`` is empty, only the kind is known.
    """

    file: str
    line: int
    function: str
    source: str
    before_ms: float
    after_ms: float
    difference_ms: float
    low_ms: float
    high_ms: float
    significant: bool
    phase: CellPhase
    doing: Doing
    via: list[Via] = msgspec.field(default_factory=list)


class FindingChange(msgspec.Struct, frozen=True):
    """A finding that is gone, new, or on both sides."""

    change: Became
    rule: str
    cause: str | None
    severity: str
    headline: str  # from the later side that has the finding
    share_before: float | None = None  # of the step; None if unknown, or if that side lacks the finding
    share_after: float | None = None


class Promise(msgspec.Struct, frozen=True):
    """The gain that was estimated for fixing a finding that is gone, and the gain measured; both include evaluation."""

    rule: str
    action: str
    estimated: Range
    measured: Range
    kept: Kept


class Side(msgspec.Struct, frozen=True):
    """The runs of one side, and the part of them that was compared."""

    runs: list[str]
    facts: RunFacts  # of the first run
    steps: int
    seconds: float
    warmup_s: float  # time at the beginning that was left out


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of earlier with later runs."""

    schema: int = 1
    headline: str
    outcome: Outcome
    speedup: Range  # time of a step before / after
    per_sample: bool = False  # True if ``speedup`` is of the time per sample, as steps differ in size
    notes: list[str] = msgspec.field(default_factory=list)  # the causes that make the comparison uncertain
    before: Side
    after: Side
    unlike: list[Unlike] = msgspec.field(default_factory=list)
    rows: list[Row] = msgspec.field(default_factory=list)
    lines: list[LineChange] = msgspec.field(default_factory=list)
    findings: list[FindingChange] = msgspec.field(default_factory=list)
    promise: Promise | None = None
