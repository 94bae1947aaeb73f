"""What tuimon reports of a recorded training, beside the truth."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tests.gpu_simulator.recorded_session import session
from tests.gpu_simulator.recorded_truth import TimelineTruth
from tests.gpu_simulator.recorded_truth import truth as truth_of
from tests.gpu_simulator.training import PID
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.judging import diagnose_run

#: A cause of waiting counts from here on.
_MATTERS = 0.10

#: By what the compute stream waits for most: rules that are right to be first.
_RIGHT = {
    "data": ("input_bound",),
    "starved": ("launch_bound", "sync_point", "transfer_bound"),
    "held_up": ("comm_bound",),
    "nothing": ("compute_bound",),
}


class PhaseRow(NamedTuple):
    """One phase; shares of the step."""

    name: str
    starved: float
    at_least: float | None  # idle: the compute stream had nothing to do
    at_most: float | None


class Verdict(NamedTuple):
    """One recording."""

    name: str
    phases: list[PhaseRow]
    at_least: float | None  # idle in the step
    at_most: float | None
    starved: float
    held_up: float
    device_idle: float
    findings: list[Finding]
    expected: tuple[str, ...]  # rules, or one with its cause

    @property
    def first(self) -> str:
        """Name and cause of the first finding."""
        first = next(iter(self.findings), None)
        return "-" if first is None else f"{first.rule}/{first.cause}" if first.cause else first.rule

    @property
    def is_right(self) -> bool:
        """Whether the first finding names what the stream waits for most."""
        return self.first in self.expected or self.first.partition("/")[0] in self.expected

    @property
    def calls_it_busy(self) -> bool:
        """Whether anything is said to be as it should be."""
        return any("as it should be" in finding.headline for finding in self.findings)

    @property
    def waits(self) -> bool:
        """Whether device or compute stream wait for more than a tenth of the time."""
        return max(self.starved + self.held_up, self.device_idle) > _MATTERS

    @property
    def width(self) -> float | None:
        """Of the bounds of the step's idle time."""
        return None if self.at_least is None or self.at_most is None else self.at_most - self.at_least


@cache
def verdict(name: str, *, counters: bool = True) -> Verdict:
    """Run a recording for as long as its steps need, and judge."""
    truth, folded = truth_of(name), session(name, counters=counters)
    steps = evidence_of(folded.over("whole"), PID).gpu.steps
    rows = []
    for phase in truth.phases:
        ours = steps.phases.get(phase) if steps else None
        scale = steps.step_ms if steps else 1.0
        rows.append(
            PhaseRow(
                phase,
                truth.share("starved", phase),
                ours.idle.low / scale if ours else None,
                ours.idle.high / scale if ours else None,
            )
        )
    return Verdict(
        name,
        rows,
        steps.idle.low if steps else None,
        steps.idle.high if steps else None,
        truth.share("starved"),
        truth.share("held_up"),
        truth.share("device_idle"),
        diagnose_run(folded, ()),
        ("launch_bound/allocator",) if _is_allocator(truth) else _RIGHT[_cause(truth)],
    )


def _is_allocator(truth: TimelineTruth) -> bool:
    """Whether calls that give memory back take most of the time."""
    timeline = truth.timeline
    freeing_ns = sum(wait.end_ns - wait.begin_ns for wait in timeline.waits if wait.kind == "free")
    return freeing_ns > timeline.period_ns / 2


def _cause(truth: TimelineTruth) -> str:
    """What the compute stream waits for most."""
    data = truth.share("starved", "data") if "data" in truth.phases else 0.0
    causes = {"data": data, "starved": truth.share("starved") - data, "held_up": truth.share("held_up")}
    most = max(causes, key=causes.__getitem__)
    return most if causes[most] >= _MATTERS else "nothing"
