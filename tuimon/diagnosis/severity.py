"""How grave a finding is, and which comes first: both follow from what its fix gains."""

from __future__ import annotations

from msgspec.structs import replace

from tuimon.diagnosis.finding import Finding, Severity
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
    others = (fix for fix in finding.fixes[1:] if (fix.estimated_speedup or WARNING_GAIN) >= WARNING_GAIN)
    finding = replace(finding, fixes=(*finding.fixes[:1], *others))
    if finding.severity in ("info", "benign"):
        return finding
    if finding.best.low is not None:
        return replace(finding, severity=_of_gain(finding.best.low))
    if finding.share_of_step is None:
        return finding
    return replace(finding, severity=max(finding.severity, _of_gain(_bound(finding.share_of_step)), key=_ORDER.index))


def likely_gain(finding: Finding) -> float:
    """The gain by which findings of one severity are ordered: as estimated, or its bound."""
    gain = finding.best.estimated_speedup or finding.best.low
    return gain if gain is not None else _bound(finding.share_of_step or 0.0)


def _of_gain(gain: float) -> Severity:
    if gain >= CRITICAL_GAIN:
        return "critical"
    return "warning" if gain >= WARNING_GAIN else "info"


def _bound(share: float) -> float:
    return 1.0 / max(1e-9, 1.0 - share)
