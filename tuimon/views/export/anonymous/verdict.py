"""A verdict without the names in it, to be held against that of the log with stand-ins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tuimon.diagnosis.reading import fold
from tuimon.records import Record


class Judged(NamedTuple):
    """A finding: rule, cause, severity, and of each fix its gain, estimated, at least and at most."""

    rule: str
    cause: str | None
    severity: str
    gains: tuple[tuple[float | None, ...], ...]


def verdict(records: Iterable[Record]) -> list[Judged]:
    """The findings over a whole log, the most important first."""
    return [
        Judged(
            finding.rule,
            finding.cause,
            finding.severity,
            tuple((fix.estimated_speedup, fix.low, fix.high) for fix in finding.fixes),
        )
        for finding in fold(records)[1]
    ]
