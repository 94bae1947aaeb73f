"""A Finding: the verdict of one rule on a training, with its fixes; also as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from tuimon.interval import Interval
from tuimon.records import LineCalls, Place
from tuimon.session.stacks.samples import HotLine
from tuimon.threshold import MOST, Threshold

Severity = Literal["critical", "warning", "info", "benign"]
Figure = float | int | str | None  # of the evidence
#: The ends of a fix's gain are at most this factor apart: our choice; anything less certain is not an estimate.
WIDEST_RANGE = 2.0
WARNING_GAIN = Threshold(
    1.05,
    "least gain of the fix (step time before / after) for a finding to be a warning",
    "our choice: a gain of less than 5 % is hardly worth a change",
)
CRITICAL_GAIN = Threshold(
    1.20,
    "least gain of the fix (step time before / after) for a finding to be critical",
    "our choice: a fifth of the cost of a training is worth an interruption",
)
#: The severities by rank, the gravest first.
SEVERITY_ORDER: dict[Severity, int] = {severity: place for place, severity in enumerate(get_args(Severity))}


EditName = Literal[
    "items", "fetch", "workers", "starts", "in_order", "side_work", "evaluation", "optimizer",
    "collections", "gil", "communication", "model", "compiling", "cost",
]  # fmt: skip


class Change(NamedTuple):
    """A change of the step by a fix: the name of an edit (``EDITS`` of ``step_model.py``), and its new value.

    The value of ``workers`` is their number. That of the other edits is the part of the time that is left: for
    ``items`` of making batches, ``fetch`` of the training thread's own work for a batch, ``starts`` of starting a
    loader's iterators, ``model`` of the Python code in it, ``cost`` of a share of the step, wherever it lies; 1 for
    ``in_order``, which is all or nothing.
    """

    edit: EditName
    to: float


class Fix(NamedTuple):
    """An action and its gain: the step time before / after, as an estimate and as two ends.

    The upper end is infinite if a fix may gain more than any evidence shows. Without an estimate, an interval that
    begins at 1 means "perhaps nothing", and one from 1 to 1 "nothing". ``changes_training``: results may differ, so
    that the training must be tuned again, as with a larger batch, accumulated gradients or a lower precision.
    """

    action: str
    estimated_speedup: float | None = None
    gain: Interval | None = None  # None: unknown
    change: Change | None = None  # None: no parameter of the step
    changes_training: bool = False

    @classmethod
    def with_gain(
        cls,
        action: str,
        gain: Interval | None,
        change: Change | None = None,
        *,
        likely: float | None = None,
        changes_training: bool = False,
    ) -> Fix:
        """A fix with this gain; without ``likely`` its estimate is the geometric mean of the ends."""
        if gain is None:
            return cls(action, change=change, changes_training=changes_training)
        if gain.high <= 1.0:
            return cls(action, None, gain, change, changes_training)
        high = min(gain.high, WIDEST_RANGE * gain.low)
        likely = math.sqrt(gain.low * high) if likely is None else min(max(gain.low, likely), high)
        return cls(action, likely, gain, change, changes_training)

    @property
    def least(self) -> float | None:
        """The least that the fix gains; None if there is no estimate."""
        is_known = self.gain is not None and (self.estimated_speedup is not None or self.gain.high <= 1.0)
        return self.gain.low if self.gain is not None and is_known else None

    @property
    def most(self) -> float:
        """The most that the fix may gain; 1 if that is unknown."""
        return self.gain.high if self.gain is not None else 1.0

    @property
    def with_open_gain(self) -> Fix:
        """The fix with an open upper end: it may gain more than any evidence shows."""
        return self._replace(gain=Interval(self.gain.low, math.inf)) if self.gain is not None else self

    @property
    def low(self) -> float | None:
        """The lower end as the report has it: None if there is no estimate."""
        return self.least if self.estimated_speedup is not None else None

    @property
    def high(self) -> float | None:
        """The upper end as the report has it: None if it is open or unknown, or if nothing is gained."""
        return self.gain.high if self.gain is not None and 1.0 < self.gain.high < math.inf else None

    def with_upper_bound(self, most: float | None) -> Fix:
        """The fix with this upper end as the only known fact about its gain."""
        return self._replace(estimated_speedup=None, gain=Interval(1.0, most) if most is not None else None)


class Finding(Struct, frozen=True):
    """The verdict of one rule.

    ``headline`` is one sentence for the verdict line; ``share_of_step`` is 0..1 of the step's wall time. ``fixes`` has
    the best first, and is empty if there is nothing to do; ``action`` and ``estimated_speedup`` are those of the best:
    the time of a step with its part of the evaluation, now / without the cause, never more than the evidence supports.
    A severity of ``critical`` or ``warning`` is only what the rule proposes: ``graded`` derives it from the gain.
    """

    headline: str
    severity: Severity = "warning"
    fixes: tuple[Fix, ...] = ()
    cause: str | None = None
    share_of_step: float | None = None
    where: tuple[Place, ...] = ()
    evidence: dict[str, Figure] = field(default_factory=dict)
    rule: str = ""  # set by the rule table
    elsewhere: bool = False  # on another node than the process in focus, so it explains nothing about that process

    @property
    def name(self) -> str:
        """``rule/cause``, or ``rule`` without a cause."""
        return f"{self.rule}/{self.cause}" if self.cause else self.rule

    @property
    def best(self) -> Fix:
        """The best fix; a fix without words if there is nothing to do."""
        return self.fixes[0] if self.fixes else Fix("")

    @property
    def action(self) -> str:
        return self.best.action

    @property
    def estimated_speedup(self) -> float | None:
        return self.best.estimated_speedup

    @property
    def speedup_at_least(self) -> float | None:
        return self.best.least


def new_finding(
    headline: str,
    *fixes: Fix | str | None,
    severity: Severity = "warning",
    cause: str | None = None,
    share: float | None = None,
    at: Iterable[HotLine | Place | None] | HotLine | Place | None = None,
    elsewhere: bool = False,
    evidence: Mapping[str, Figure] | None = None,
    **figures: Figure,
) -> Finding:
    """A finding as a rule states it: a fix of unknown gain is a text, and figures have names."""
    places = (at,) if isinstance(at, (HotLine, Place)) else at or ()
    found = (each.place if isinstance(each, HotLine) else each for each in places if each is not None)
    return Finding(
        headline,
        severity,
        tuple(Fix(fix) if isinstance(fix, str) else fix for fix in fixes if fix is not None),
        cause,
        share,
        tuple(dict.fromkeys(found)),
        {**(evidence or {}), **figures},
        elsewhere=elsewhere,
    )


# -- the severity, as it follows from the gains of the fixes


def bounds(name: Literal["gpu_idle", "gpu_waits"], share: Interval) -> dict[str, float | None]:
    """Both ends as findings report them; None if the interval is too wide to be useful.

    ``gpu_idle``: all idle time of the GPU in a step. ``gpu_waits``: the part of it for which one cause lasts.
    """
    known = share.width <= MOST
    return {f"{name}_at_least": share.low if known else None, f"{name}_at_most": share.high if known else None}


def calls_per_step(repeats: LineCalls | None) -> dict[str, float]:
    """How often each step repeats a call, as a figure: ``item_calls_per_step``."""
    return {f"{repeats.name.strip('_')}_calls_per_step": repeats.calls} if repeats is not None else {}


def graded(finding: Finding) -> Finding:
    """The finding with the severity that its gain supports.

    The lower end of an estimated gain decides. Without an estimate, the share of the step bounds the gain from above, 1
    / (1 - share), and the severity is at most that of this bound, and at most the rule's own. A finding that may end
    the run, or has neither gain nor share, stays as it is. Further fixes that gain too little for a warning are left
    out.
    """
    fixes = _ordered(finding.fixes)
    others = (fix for fix in fixes[1:] if (fix.estimated_speedup or WARNING_GAIN) >= WARNING_GAIN)
    finding = replace(finding, fixes=(*fixes[:1], *others))
    if finding.severity == "benign":
        return finding
    if finding.best.least is not None:
        return replace(finding, severity=_severity_of(finding.best.least))
    if finding.severity == "info" or finding.share_of_step is None:
        return finding
    return replace(
        finding,
        severity=max(finding.severity, _severity_of(_bound(finding.share_of_step)), key=SEVERITY_ORDER.__getitem__),
    )


def within_share(finding: Finding) -> Finding:
    """The finding with no fix that gains more than its share of the step is worth: 1 / (1 - share), Amdahl's law."""
    if finding.share_of_step is None:
        return finding
    most, fixes = _bound(finding.share_of_step), list(finding.fixes)
    for n, fix in enumerate(fixes):
        if fix.gain is not None:
            likely = min(fix.estimated_speedup, most) if fix.estimated_speedup is not None else None
            high = math.inf if math.isinf(fix.gain.high) else min(fix.gain.high, most)  # an open end stays open
            fixes[n] = fix._replace(estimated_speedup=likely, gain=Interval(min(fix.gain.low, most), high))
    return replace(finding, fixes=tuple(fixes))


def _ordered(fixes: Sequence[Fix]) -> list[Fix]:
    """The fixes in the rule's order, except that one that changes the training follows others that may gain as much.

    A batch twice as large gains 2x, torch.compile 1.5x to 2.5x: the second comes first. Of two without an upper end
    the estimates decide.
    """

    def may_gain(fix: Fix) -> tuple[float, float]:
        return fix.most, fix.estimated_speedup or 0.0

    def place(fix: Fix, at: int) -> tuple[int, bool]:
        if not fix.changes_training:
            return at, False
        as_good = [i for i, each in enumerate(fixes) if not each.changes_training and may_gain(each) >= may_gain(fix)]
        return max([at, *as_good]), True

    return [fixes[at] for at in sorted(range(len(fixes)), key=lambda at: place(fixes[at], at))]


def likely_gain(finding: Finding) -> float:
    """The gain by which findings of one severity are ordered: the estimate, or the bound that the share gives."""
    gain = finding.best.estimated_speedup or finding.best.least
    return gain if gain is not None else _bound(finding.share_of_step or 0.0)


def leading(findings: Iterable[Finding]) -> Finding | None:
    """The finding that gains most, with the fixes and figures of all: each is a cause of its own."""
    found = sorted(findings, key=likely_gain, reverse=True)
    if not found:
        return None
    figures = {name: value for each in reversed(found) for name, value in each.evidence.items()}
    return replace(found[0], fixes=tuple(fix for each in found for fix in each.fixes), evidence=figures)


def _severity_of(gain: float) -> Severity:
    if gain >= CRITICAL_GAIN:
        return "critical"
    return "warning" if gain >= WARNING_GAIN else "info"


def _bound(share: float) -> float:
    return 1.0 / max(1e-9, 1.0 - share)


# -- as JSON, whose field names are a contract


class PlaceJson(Struct):
    """A line of code."""

    file: str
    line: int
    function: str

    @classmethod
    def of(cls, place: Place | None) -> PlaceJson | None:
        """The place; None if it is unknown."""
        return cls(place.file, place.line, place.function) if place is not None else None


class CodePlace(PlaceJson):
    """A line of code with its text, if the log has it."""

    source: str | None


class FixJson(Struct):
    """A fix. A gain is the step time now / the step time with the fix: 1.25 means 1.25x faster."""

    action: str
    estimated_speedup: float | None  # null: no estimate
    low: float | None  # it gains at least this; null without an estimate
    high: float | None  # it gains at most this; null: no upper end is known, or nothing is gained


class FindingJson(Struct):
    """The verdict of one rule."""

    rule: str
    severity: Severity
    headline: str
    share_of_step: float | None  # share of the step's wall time that it is about, 0..1
    cause: str | None
    where: list[CodePlace]  # the lines to blame, the first first
    evidence: dict[str, Figure]  # the figures that it rests on, by name
    fixes: list[FixJson]  # the best first
    action: str  # the best fix
    estimated_speedup: float | None  # its gain
    speedup_at_least: float | None  # the least that it gains

    @classmethod
    def of(cls, finding: Finding) -> FindingJson:
        """The finding, its figures with four digits: they are measured to two or three."""
        return cls(
            finding.rule,
            finding.severity,
            finding.headline,
            finding.share_of_step,
            finding.cause,
            [CodePlace(at.file, at.line, at.function, at.source.strip() or None) for at in finding.where],
            {
                name: float(f"{value:.4g}") if isinstance(value, float) else value
                for name, value in finding.evidence.items()
            },
            [FixJson(fix.action, fix.estimated_speedup, fix.low, fix.high) for fix in finding.fixes],
            finding.action,
            finding.estimated_speedup,
            finding.speedup_at_least,
        )


class VerdictChange(Struct, frozen=True):
    """Another finding became the first; findings are named ``rule`` or ``rule/cause``."""

    at_s: float | None  # from the start of the run
    step: int | None
    before: str | None = field(name="from")  # None: there was none, or is none any more
    after: str | None = field(name="to")


class Unjudged(Struct, frozen=True):
    """A rule, or a part of one, that lacked the evidence to judge."""

    rule: str
    reason: str
