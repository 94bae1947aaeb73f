"""A finding as programs read it: in ``report --format json``, and on the stdin of ``--on-finding``'s commands."""

from __future__ import annotations

import math
from typing import Any

from tuimon.diagnosis.finding import Finding, Fix


def finding_json(finding: Finding) -> dict[str, Any]:  # Any: str, int, float, None, lists and dicts of these
    """One finding; its field names are a contract."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "headline": finding.headline,
        "share_of_step": finding.share_of_step,
        "cause": finding.cause,
        "where": [{"file": place.file, "line": place.line, "function": place.function} for place in finding.where],
        "evidence": {name: _rounded(value) for name, value in finding.evidence.items()},
        "fixes": [_fix(fix) for fix in finding.fixes],
        "action": finding.action,
        "estimated_speedup": finding.estimated_speedup,
        "speedup_at_least": finding.best.low,
    }


def _rounded(value: float | str | None) -> float | str | None:
    """Four digits of what is measured to two or three."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _fix(fix: Fix) -> dict[str, Any]:
    high = fix.high if fix.high is not None and math.isfinite(fix.high) else None
    low = fix.low if fix.estimated_speedup is not None else None
    gains = {"estimated_speedup": fix.estimated_speedup, "low": low, "high": high}
    return {"action": fix.action, **gains}
