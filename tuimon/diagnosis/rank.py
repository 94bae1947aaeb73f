"""Which finding comes first."""

from __future__ import annotations

from tuimon.diagnosis.finding import Finding

_SEVERITY = {"critical": 0, "warning": 1, "info": 2, "benign": 3}


def ranked(findings: list[Finding]) -> list[Finding]:
    """By severity, then by the share of the step: the first is what to fix first."""
    return sorted(findings, key=lambda f: (_SEVERITY[f.severity], -(f.share_of_step or 0.0)))
