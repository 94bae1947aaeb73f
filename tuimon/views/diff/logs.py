"""Logs and folders of runs read and compared."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tuimon.diagnosis.comparison.compare import compare
from tuimon.diagnosis.comparison.outcome.result import Comparison
from tuimon.diagnosis.comparison.side.figures import RunFigures, figures_of
from tuimon.diagnosis.reading import fold
from tuimon.errors import UnreadableLog
from tuimon.sources.log.joined.opening import Chosen, read_logs


def compare_logs(before: Sequence[Chosen], after: Sequence[Chosen], *, anyway: bool = False) -> Comparison:
    """Compare what ``choose_all`` has found on each side. Raises NotALog, NotComparable."""
    left_out = {error.message: None for run in (*before, *after) for error in run.left_out}
    sides = [_side(runs, left_out) for runs in (before, after)]
    found = compare(*sides, anyway=anyway)
    return replace(found, notes=[*found.notes, *(f"left out: {message}" for message in left_out)])


def _side(runs: Sequence[Chosen], left_out: dict[str, None]) -> list[RunFigures]:
    """The runs that can be read to their ends. Raises UnreadableLog where there is none."""
    found, failure = [], None
    for run in runs:
        try:
            found.append(_figures(run))
        except UnreadableLog as error:
            failure = error
            left_out[error.message] = None
    if not found and failure is not None:
        raise failure
    return found


def _figures(run: Chosen) -> RunFigures:
    session, findings = fold(read_logs(run))
    return figures_of(session, findings, run.name)
