"""The verdict on a finished run, in what ``tuimon run`` and ``tuimon attach`` must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.hysteresis import name_of


class Verdict(NamedTuple):
    """The first finding."""

    name: str  # rule/cause
    severity: str
    function: str  # that it names: of several hot lines of one function any may be first

    @property
    def text(self) -> str:
        """For tables."""
        return f"{self.name} {self.severity} {self.function}".rstrip()


#: No finding.
NOTHING = Verdict("-", "", "")


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """Of a finished run, whatever else ran on the machine."""
    first = next((finding for finding in findings if finding.rule != "neighbour"), None)
    if first is None:
        return NOTHING
    place = first.where[0] if first.where and first.severity in ("critical", "warning") else None
    function = f"{place.function}() {place.file.rpartition('/')[2]}" if place is not None else ""
    return Verdict(name_of(first) or "-", first.severity, function)


def attached_text(run: Verdict, attached: Verdict | None) -> str:
    """A cell of a table; ``!`` marks what differs from ``tuimon run``."""
    return "-" if attached is None else attached.text + ("" if attached == run else " !")


def attached_totals(rows: Sequence[tuple[Verdict, Verdict | None]]) -> str:
    """Under a table: how often ``tuimon run`` and ``tuimon attach`` agreed, and in what."""
    both = [(run, attached) for run, attached in rows if attached is not None]
    agreed = {
        "verdict": sum(run.name == attached.name for run, attached in both),
        "severity": sum(run.severity == attached.severity for run, attached in both),
        "place": sum(run.function == attached.function for run, attached in both),
        "all": sum(run == attached for run, attached in both),
    }
    return f"attach as run   {', '.join(f'{what} {n}' for what, n in agreed.items())} of {len(both)}" if both else ""
