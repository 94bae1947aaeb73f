"""What tuimon predicts of the fix that a script measures."""

from __future__ import annotations

from tuimon.diagnosis.finding import Finding


def of_best_fix(finding: Finding) -> float | None:
    """Of a script whose fixed form does what is best."""
    return finding.estimated_speedup


def of_cheaper_line(finding: Finding) -> float | None:
    """Of a script whose fixed form lacks a piece of work: as if that cost nothing; else of the best fix."""
    free = (fix for fix in finding.fixes if fix.action.startswith("make ") and " cheaper" in fix.action)
    return next(free, finding.fixes[0]).estimated_speedup if finding.fixes else None
