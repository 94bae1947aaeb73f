"""A Finding: the verdict of one rule on a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tuimon.records import Place

Severity = Literal["critical", "warning", "info", "benign"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict.

    ``headline`` is one sentence for the verdict line; ``share_of_step`` is 0..1 of the step's wall time;
    ``estimated_speedup`` is step time now / step time without the cause, never above what the evidence bears;
    ``speedup_at_least`` is the lower end of that, where the two differ. ``critical`` and ``warning`` are what a rule
    proposes: ``diagnosis.severity`` makes them follow from the gain.
    """

    rule: str
    severity: Severity
    headline: str
    action: str
    cause: str | None = None
    share_of_step: float | None = None
    where: tuple[Place, ...] = ()
    evidence: dict[str, float | int | str | None] = field(default_factory=dict)
    estimated_speedup: float | None = None
    speedup_at_least: float | None = None
