"""The result of a comparison, which ``diff --format json`` writes: its field names are a contract."""

from __future__ import annotations

from typing import Literal

import msgspec

from tuimon.diagnosis.cells import CellPhase, Doing, Via
from tuimon.views.report_types import RunFacts

Unit = Literal["ms", "1/s", "bytes", "bytes/s", "%", "1"]
#: The outcome of comparing a measured gain with its estimate.
Kept = Literal["kept", "more", "less", "unclear"]
#: The fate of a finding.
Became = Literal["gone", "new", "stays"]
#: ``same``: no difference that matters; ``unclear``: the data allow for a difference, and for none.
Outcome = Literal["faster", "slower", "same", "unclear"]


#: ``void``: steps are not the same work, or not on the same machine; ``per sample``: they differ in a known size.
Effect = Literal["said", "per sample", "void"]


class Unlike(msgspec.Struct, frozen=True):
    """A fact that differs: its name, both values as text, and what follows for the comparison."""

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
    """One quantity of a step or of the run.

    ``difference`` is after less before, in ``unit``, ``low`` and ``high`` its 95 % interval (None if a single run
    cannot show how it varies). ``significant``: whether it is more than chance, given all rows; None without interval.
    """

    name: str
    unit: Unit
    before: float | None
    after: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    significant: bool | None = None
    estimated: bool = False  # rests on stack samples


class LineChange(msgspec.Struct, frozen=True):
    """A part of a step that is of one kind and in one function, at its most frequent line in the later run.

    A wait counts at its cause: ``via`` then names the wait, and the line is that of the process or thread that caused
    it, such as a worker. If ``file`` is empty, only the kind is known.
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
    """A finding that is gone, new, or on both sides; a share is None if unknown, or if its side lacks the finding."""

    change: Became
    rule: str
    cause: str | None
    severity: str
    headline: str  # from the later side that has the finding
    share_before: float | None = None
    share_after: float | None = None


class Promise(msgspec.Struct, frozen=True):
    """The gain that a finding estimated before it was gone, and the measured gain; both include evaluation."""

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
    warmup_s: float  # left out at the beginning


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides compared."""

    schema: int = 1
    headline: str
    outcome: Outcome
    #: The speedup: time of a step before / after, or of a sample if steps differ in size.
    speedup: Range
    per_sample: bool = False
    notes: list[str] = msgspec.field(default_factory=list)  # notes on the uncertainty of the comparison
    before: Side
    after: Side
    unlike: list[Unlike] = msgspec.field(default_factory=list)
    rows: list[Row] = msgspec.field(default_factory=list)
    lines: list[LineChange] = msgspec.field(default_factory=list)
    findings: list[FindingChange] = msgspec.field(default_factory=list)
    promise: Promise | None = None
