"""Holds each fix's predicted gain against the one that was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.gain_truth.changes import change_of
from tests.gain_truth.running import measured, watched
from tests.random_loops.plan import Plan
from tests.scenarios.judging import fold, name_of
from tuimon.diagnosis.finding import Fix

#: A prediction is right when it is as close as this to what was measured.
CLOSE = 0.25
#: With so much of the machine taken by other programs, times are not comparable.
BUSY_CORES = 0.5


@dataclass(frozen=True)
class Tried:
    """One fix of one script."""

    seed: int
    finding: str
    severity: str
    change: str  # "" where the script cannot be changed that way
    fix: Fix
    measured: float | None

    @property
    def kind(self) -> str:
        """The fix, whatever it is applied to."""
        what, to = self.fix.change or ("other", 0.0)
        if what == "workers":
            return "no workers" if not to else "more workers"
        return f"{what} {'half' if to else 'free'}" if to < 1 else what

    @property
    def predicted(self) -> float:
        """As estimated; a fix without a gain is said to gain nothing."""
        return self.fix.estimated_speedup or 1.0

    @property
    def is_close(self) -> bool | None:
        """Whether the estimate is within ``CLOSE`` of what was measured; None where there are not both."""
        return None if self.measured is None else abs(self.predicted / self.measured - 1.0) <= CLOSE

    @property
    def is_in_range(self) -> bool | None:
        """Whether the range, widened by ``CLOSE``, holds what was measured."""
        low, high = self.fix.low or self.predicted, self.fix.high or self.predicted
        return None if self.measured is None else low * (1 - CLOSE) <= self.measured <= high * (1 + CLOSE)


def tried(plan: Plan, folder: Path, seconds: float, each_s: float) -> list[Tried]:
    """All fixes of all findings of one script. Raises ScenarioFailed."""
    script, outcome = watched(plan, seconds, folder)
    findings = [finding for finding in fold(outcome.log).findings if finding.severity != "benign"]
    fixes = [(finding, fix, change_of(finding, fix, plan, script)) for finding in findings for fix in finding.fixes]
    gains = measured(plan, [change for _, _, change in fixes if change is not None], each_s, folder)
    return [
        Tried(plan.seed, name_of(finding), finding.severity, change or "", fix, gains.get(change or ""))
        for finding, fix, change in fixes
        if fix.estimated_speedup is not None or change is not None
    ]
