"""A finding as programs read it: in ``report --format json``, and on the stdin of ``--on-finding``'s commands."""

from __future__ import annotations

from typing import Any

from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.severity import least_gain


def finding_json(finding: Finding) -> dict[str, Any]:  # Any: str, int, float, None, lists and dicts of these
    """One finding; its field names are a contract."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "headline": finding.headline,
        "share_of_step": finding.share_of_step,
        "cause": finding.cause,
        "where": [{"file": place.file, "line": place.line, "function": place.function} for place in finding.where],
        "evidence": dict(finding.evidence),
        "fixes": [_fix(fix) for fix in finding.fixes],
        "action": finding.action,
        "estimated_speedup": finding.estimated_speedup,
        "speedup_at_least": least_gain(finding),
    }


def _fix(fix: Fix) -> dict[str, Any]:
    gains = {"estimated_speedup": fix.estimated_speedup, "low": fix.low, "high": fix.high}
    return {"action": fix.action, **gains}
