"""A Finding: the verdict of one rule on a training, and the fixes for it; also as programs read it, in JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.threshold import Threshold
from tuimon.records import Place

Severity = Literal["critical", "warning", "info", "benign"]
#: The ends of a fix's gain are at most this factor apart: our choice; what is less certain is no estimate.
WIDEST_RANGE = 2.0
WARNING_GAIN = Threshold(
    1.05,
    "least gain of the fix (step time now / then) from which a finding is a warning",
    "our choice: a gain of less than 5 % is hardly worth a change",
)
CRITICAL_GAIN = Threshold(
    1.20,
    "least gain of the fix (step time now / then) from which a finding is critical",
    "our choice: a fifth of the cost of a training is worth an interruption",
)
#: Gravest first.
SEVERITY: dict[Severity, int] = {severity: place for place, severity in enumerate(get_args(Severity))}


What = Literal[
    "items", "fetch", "workers", "starts", "in_order", "side_work", "evaluation", "optimizer",
    "collections", "gil", "communication", "model", "compiling", "cost",
]  # fmt: skip


class Change(NamedTuple):
    """A change of the step by a fix: a parameter, and its new value.

    For ``items`` (making batches), ``fetch`` (the training thread's own work for one), ``starts`` (of iterators of a
    loader), ``model`` (Python code that it runs) and work beside the training it is the share of the time that is left;
    of ``workers`` their number; of ``in_order`` 1; of ``cost`` (a share of the step, wherever it lies) 0.
    ``step_model/edits.py`` applies each to a step.
    """

    what: What
    to: float


class Fix(NamedTuple):
    """An action and its gain: step time now / then, as estimated, and between which ends.

    The upper end is infinite where a fix may gain more than any evidence shows. Without an estimate a gain from 1 on
    may be anything up to its upper end, and one from 1 to 1 is nothing. A fix changes the training if its results may
    differ, so that it wants tuning anew: a larger batch, gradients accumulated, a lower precision.
    """

    action: str
    estimated_speedup: float | None = None
    gain: Interval | None = None  # None: unknown
    change: Change | None = None  # None: no parameter of the step
    changes_training: bool = False

    @classmethod
    def gaining(
        cls,
        action: str,
        gain: Interval | None,
        change: Change | None = None,
        *,
        likely: float | None = None,
        changes_training: bool = False,
    ) -> Fix:
        """A fix with this gain; if nothing else is ``likely``, it is as far from the one end as from the other."""
        if gain is None:
            return cls(action, change=change, changes_training=changes_training)
        if gain.high <= 1.0:
            return cls(action, None, gain, change, changes_training)
        high = min(gain.high, WIDEST_RANGE * gain.low)
        likely = math.sqrt(gain.low * high) if likely is None else min(max(gain.low, likely), high)
        return cls(action, likely, gain, change, changes_training)

    @property
    def least(self) -> float | None:
        """What it gains at least; None where nothing is estimated."""
        is_known = self.gain is not None and (self.estimated_speedup is not None or self.gain.high <= 1.0)
        return self.gain.low if self.gain is not None and is_known else None

    @property
    def without_upper_end(self) -> Fix:
        """The fix where it may gain more than any evidence shows."""
        return self._replace(gain=Interval(self.gain.low, math.inf)) if self.gain is not None else self

    def as_json(self) -> dict[str, Any]:  # Any: str, float, None
        """As the report has it: an end that is open or unknown is None."""
        high = self.gain.high if self.gain is not None and 1.0 < self.gain.high < math.inf else None
        low = self.least if self.estimated_speedup is not None else None
        gains = {"estimated_speedup": self.estimated_speedup, "low": low, "high": high}
        return {"action": self.action, **gains}

    def by_up_to(self, most: float | None) -> Fix:
        """The fix where nothing is known of its gain but that it is no greater."""
        return self._replace(estimated_speedup=None, gain=Interval(1.0, most) if most is not None else None)


class Finding(Struct, frozen=True):
    """One verdict.

    ``headline`` is one sentence for the verdict line; ``share_of_step`` is 0..1 of the step's wall time. ``fixes`` are
    best first, none where there is nothing to do; ``action`` and ``estimated_speedup`` are those of the best: time of a
    step and its part of the evaluation, now / without the cause, never above what the evidence bears. ``critical`` and
    ``warning`` are what a rule proposes: ``graded`` makes them follow from the gain.
    """

    headline: str
    severity: Severity = "warning"
    fixes: tuple[Fix, ...] = ()
    cause: str | None = None
    share_of_step: float | None = None
    where: tuple[Place, ...] = ()
    evidence: dict[str, float | int | str | None] = field(default_factory=dict)
    rule: str = ""  # set by the table of rules
    elsewhere: bool = False  # on another node than the process in focus: it explains nothing of that one

    @property
    def name(self) -> str:
        """``rule/cause``, or ``rule`` where there is no cause."""
        return f"{self.rule}/{self.cause}" if self.cause else self.rule

    @property
    def best(self) -> Fix:
        """The best fix; one without words where there is nothing to do."""
        return self.fixes[0] if self.fixes else Fix("")

    @property
    def action(self) -> str:
        """The action to take first."""
        return self.best.action

    @property
    def estimated_speedup(self) -> float | None:
        """The gain of that action."""
        return self.best.estimated_speedup


# -- how grave it is follows from what its fixes gain


def graded(finding: Finding) -> Finding:
    """The finding with the severity that its gain supports.

    The lower end of an estimated gain decides alone. If no gain is estimated, the share of the step bounds it from
    above, 1 / (1 - share), and a finding is at most as grave as this bound, and as its rule sets. A finding that does
    harm, or has neither gain nor share, stays as it is. Further fixes that gain less than a warning's are left out.
    """
    fixes = _in_order(finding.fixes)
    others = (fix for fix in fixes[1:] if (fix.estimated_speedup or WARNING_GAIN) >= WARNING_GAIN)
    finding = replace(finding, fixes=(*fixes[:1], *others))
    if finding.severity == "benign":
        return finding
    if finding.best.least is not None:
        return replace(finding, severity=_of_gain(finding.best.least))
    if finding.severity == "info" or finding.share_of_step is None:
        return finding
    return replace(
        finding, severity=max(finding.severity, _of_gain(_bound(finding.share_of_step)), key=SEVERITY.__getitem__)
    )


def within_share(finding: Finding) -> Finding:
    """The finding with no fix that gains more than its share of the step is worth: 1 / (1 - share), Amdahl's law."""
    if finding.share_of_step is None:
        return finding
    return replace(finding, fixes=tuple(_within(fix, _bound(finding.share_of_step)) for fix in finding.fixes))


def _within(fix: Fix, most: float) -> Fix:
    """The fix with no greater gain than this; one that has no upper end keeps none."""
    if fix.gain is None:
        return fix
    low, high = fix.gain
    estimated = min(fix.estimated_speedup, most) if fix.estimated_speedup is not None else None
    return fix._replace(
        estimated_speedup=estimated, gain=Interval(min(low, most), high if math.isinf(high) else min(high, most))
    )


def _in_order(fixes: Sequence[Fix]) -> list[Fix]:
    """As the rule has ordered them, but none that changes the training before one that does not and may gain as much.

    A batch twice as large gains 2x, torch.compile 1.5x to 2.5x: the second comes first.
    """

    def place(fix: Fix, at: int) -> tuple[int, bool]:
        if not fix.changes_training:
            return at, False
        as_good = [i for i, each in enumerate(fixes) if not each.changes_training and _most(each) >= _most(fix)]
        return max([at, *as_good]), True

    return [fixes[at] for at in sorted(range(len(fixes)), key=lambda at: place(fixes[at], at))]


def _most(fix: Fix) -> float:
    """What a fix may gain; nothing where that is not known."""
    return fix.gain.high if fix.gain is not None else 1.0


def likely_gain(finding: Finding) -> float:
    """The gain by which findings of one severity are ordered: as estimated, or its bound."""
    gain = finding.best.estimated_speedup or finding.best.least
    return gain if gain is not None else _bound(finding.share_of_step or 0.0)


def _of_gain(gain: float) -> Severity:
    if gain >= CRITICAL_GAIN:
        return "critical"
    return "warning" if gain >= WARNING_GAIN else "info"


def _bound(share: float) -> float:
    return 1.0 / max(1e-9, 1.0 - share)


# -- as programs read it


def finding_json(finding: Finding) -> dict[str, Any]:  # Any: str, int, float, None, lists and dicts of these
    """One finding; its field names are a contract."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "headline": finding.headline,
        "share_of_step": finding.share_of_step,
        "cause": finding.cause,
        "where": [{**place._asdict(), "source": place.source.strip() or None} for place in finding.where],
        "evidence": {  # four digits of what is measured to two or three
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in finding.evidence.items()
        },
        "fixes": [fix.as_json() for fix in finding.fixes],
        "action": finding.action,
        "estimated_speedup": finding.estimated_speedup,
        "speedup_at_least": finding.best.least,
    }
