"""How grave a finding is: that follows from what its fix gains."""

from __future__ import annotations

from msgspec.structs import replace

from tuimon.diagnosis.finding import WIDEST_RANGE, Finding, Severity
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
    """The finding with the severity its gain supports, its estimate at most ``WIDEST_RANGE`` times its lower end.

    The lower end of an estimated gain decides alone. If no gain is estimated, the share of the step bounds it from
    above, 1 / (1 - share), and a finding is at most as grave as this bound, and as its rule sets. A finding that does
    harm, or has neither gain nor share, stays as it is. Further fixes that gain less than a warning's are left out.
    """
    others = tuple(fix for fix in finding.other_fixes if (fix.estimated_speedup or WARNING_GAIN) >= WARNING_GAIN)
    finding = replace(finding, other_fixes=others)
    if finding.severity in ("info", "benign"):
        return finding
    least = least_gain(finding)
    if least is not None:
        gain = finding.estimated_speedup
        gain = gain if gain is None else min(gain, WIDEST_RANGE * least)
        return replace(finding, severity=_of_gain(least), estimated_speedup=gain)
    if finding.share_of_step is None:
        return finding
    return replace(finding, severity=max(finding.severity, _of_gain(_bound(finding.share_of_step)), key=_ORDER.index))


def least_gain(finding: Finding) -> float | None:
    """The lower end of its estimated gain: step time now / then; None where none is estimated."""
    return finding.speedup_at_least if finding.speedup_at_least is not None else finding.estimated_speedup


def likely_gain(finding: Finding) -> float:
    """The gain by which findings of one severity are ordered: as estimated, or its bound."""
    gain = finding.estimated_speedup or least_gain(finding)
    return gain if gain is not None else _bound(finding.share_of_step or 0.0)


def _of_gain(gain: float) -> Severity:
    if gain >= CRITICAL_GAIN:
        return "critical"
    return "warning" if gain >= WARNING_GAIN else "info"


def _bound(share: float) -> float:
    return 1.0 / max(1e-9, 1.0 - share)
