"""Logs and folders of runs read and compared."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.diagnosis.comparison.compare import compare
from tuimon.diagnosis.comparison.outcome.result import Comparison
from tuimon.diagnosis.comparison.side.figures import RunFigures, figures_of
from tuimon.diagnosis.reading import fold
from tuimon.sources.log.joined.opening import Chosen, read_logs


def compare_logs(before: Sequence[Chosen], after: Sequence[Chosen], *, anyway: bool = False) -> Comparison:
    """Compare what ``choose_all`` has found on each side. Raises NotALog, NotComparable."""
    return compare([_figures(run) for run in before], [_figures(run) for run in after], anyway=anyway)


def _figures(run: Chosen) -> RunFigures:
    session, findings = fold(read_logs(run))
    return figures_of(session, findings, run.name)
