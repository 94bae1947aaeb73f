"""What the fixes of a finding gain, and in which order they stand: from that follows how grave it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from tuimon.diagnosis.finding import Finding, Fix, Severity
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.threshold import Threshold

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
_ORDER: tuple[Severity, ...] = ("critical", "warning", "info", "benign")


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
    return replace(finding, severity=max(finding.severity, _of_gain(_bound(finding.share_of_step)), key=_ORDER.index))


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
