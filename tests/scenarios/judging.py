"""Compares what tuimon reports with a scenario's truth."""

from __future__ import annotations

from dataclasses import dataclass

from tests.scenarios.catalogue import Scenario
from tests.scenarios.running import Outcome, Truth
from tuimon.diagnosis import diagnose
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.records import Steps
from tuimon.session.session import Session
from tuimon.sources.log.reader import read_log

#: What a healthy training on the CPU may report.
HEALTHY = ("compute_bound_cpu", "neighbour")
#: With so much of the machine taken by other programs, saying so is no false alarm.
OTHERS_CORES = 0.2
#: ... and with so much of it, two runs one after the other cannot be compared.
BUSY_CORES = 0.5
_PHASES = ("data", "forward", "backward", "optimizer", "other")


@dataclass(frozen=True)
class Judgement:
    """One row of the table."""

    scenario: Scenario
    got: str  # rule/cause of the primary finding
    headline: str
    right: bool
    place: str  # "" where none was named
    place_right: bool | None  # None: no line is to blame
    share_error: float | None  # the largest of a phase, 0..1
    verdict_s: float | None  # from the first step until the primary verdict is right and stays
    false_alarms: tuple[str, ...]
    predicted: float | None  # speed-up
    measured: float | None
    others_cores: float

    @property
    def gain_error(self) -> float | None:
        """Predicted against measured speed-up, as a ratio; None on a machine too busy to compare two runs."""
        if self.predicted is None or self.measured is None or self.others_cores >= BUSY_CORES:
            return None
        return self.predicted / self.measured - 1


def judge(scenario: Scenario, outcome: Outcome, fixed: Truth | None) -> Judgement:
    """Fold the log as a live run is, once a second, and compare."""
    session, verdicts, moments = _fold(outcome)
    findings = verdicts.ranked() or diagnose(session)
    first = findings[0] if findings else None
    named = {p.line for p in first.where[:1] if p.file.endswith(f"/{scenario.path.name}")} if first else set()
    return Judgement(
        scenario=scenario,
        got=_name(first),
        headline=first.headline if first else "",
        right=_is_right(scenario, first, outcome),
        place=f"{first.where[0].file.rpartition('/')[2]}:{first.where[0].line}" if first and first.where else "",
        place_right=bool(named & scenario.lines) if scenario.lines else None,
        share_error=_share_error(session, outcome.truth),
        verdict_s=_settled_after(scenario, moments, outcome),
        false_alarms=tuple(_name(f) for f in _alarms(scenario, findings, outcome)),
        predicted=first.estimated_speedup if first and scenario.rule else None,
        measured=outcome.truth.wall_ms / fixed.wall_ms if fixed else None,
        others_cores=outcome.others_cores,
    )


def _fold(outcome: Outcome) -> tuple[Session, Verdicts, list[tuple[float, Finding | None]]]:
    """The session at the end, its verdicts, and the primary finding second by second from the first step on."""
    session, verdicts = Session(), Verdicts()
    moments: list[tuple[float, Finding | None]] = []
    judged_s: float | None = None
    first_s = last_s = None
    for record in read_log(str(outcome.log)):
        session.add(record)
        if isinstance(record, Steps) and record.count:
            first_s, last_s = first_s or record.t - record.window_s, record.t
        judged_s = record.t if judged_s is None else judged_s
        if session.exit is None and record.t - judged_s >= 1.0:
            findings = verdicts.judge_moment(session, record.t - judged_s)
            judged_s = record.t
            if first_s is not None:
                moments.append((record.t - first_s, findings[0] if findings else None))
    ending_s = (last_s or 0.0) - (first_s or 0.0)
    return session, verdicts, [(s, finding) for s, finding in moments if s <= ending_s]


def _name(finding: Finding | None) -> str:
    if finding is None:
        return "-"
    return f"{finding.rule}/{finding.cause}" if finding.cause else finding.rule


def _is_right(scenario: Scenario, finding: Finding | None, outcome: Outcome) -> bool:
    if scenario.rule is None:
        return finding is None or finding.severity in ("info", "benign") or _excused(finding, outcome)
    return finding is not None and (finding.rule, finding.cause) == (scenario.rule, scenario.cause or finding.cause)


def _excused(finding: Finding, outcome: Outcome) -> bool:
    return finding.rule == "neighbour" and outcome.others_cores >= OTHERS_CORES


def _alarms(scenario: Scenario, findings: list[Finding], outcome: Outcome) -> list[Finding]:
    loud = [f for f in findings if f.severity in ("critical", "warning") and not _excused(f, outcome)]
    return [f for f in loud if scenario.rule is None]


def _settled_after(scenario: Scenario, moments: list[tuple[float, Finding | None]], outcome: Outcome) -> float | None:
    """Seconds from the first step until nothing wrong is reported any more; None where the end is wrong too."""
    settled: float | None = None
    for seconds, finding in moments:
        if not _is_right(scenario, finding, outcome):
            settled = None
        elif settled is None:
            settled = seconds
    return settled


def _share_error(session: Session, truth: Truth) -> float | None:
    pid = session.trainer()
    table = session.run_phases(pid) if pid is not None else None
    if table is None or not truth.shares:
        return None
    found = {row.name: row.share for row in table.rows}
    return max(abs(found.get(name, 0.0) - truth.shares.get(name, 0.0)) for name in _PHASES)
