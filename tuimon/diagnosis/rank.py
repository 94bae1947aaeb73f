"""Which finding comes first."""

from __future__ import annotations

from typing import get_args

from tuimon.diagnosis.finding import Finding, Severity
from tuimon.diagnosis.rulebook import BY_NAME
from tuimon.diagnosis.severity import likely_gain

#: Gravest first.
SEVERITY = {severity: place for place, severity in enumerate(get_args(Severity))}


def ranked(findings: list[Finding]) -> list[Finding]:
    """The findings by severity, then by gain: the first is what to fix first; harm comes first of all.

    Causes outside the run come after those inside. That a loop is in order, its GPU or CPU the
    bottleneck, comes before what is benign, and before what is not worth a fix.
    """
    return sorted(findings, key=_rank)


def is_minor(rule: str, severity: str) -> bool:
    """True if a rule has found something, but nothing whose fix gains enough to be the headline of a run."""
    return severity == "info" and rule in BY_NAME and BY_NAME[rule].contradicts_order


def _rank(finding: Finding) -> tuple[int, bool, bool, bool, float]:
    rule = BY_NAME[finding.rule]
    gravity, is_no_headline = SEVERITY[rule.ranked_as or finding.severity], is_minor(finding.rule, finding.severity)
    return gravity, not rule.is_harm, rule.from_outside, is_no_headline, -likely_gain(finding)
