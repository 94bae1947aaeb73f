"""Compares what tuimon reports with a scenario's truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.scenarios.catalogue import Scenario
from tests.scenarios.running import Outcome, Truth
from tests.scenarios.verdict import NOTHING, Verdict, verdict_of
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rulebook import BY_NAME
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
#: A fault whose fix gains less is none that has to be named: a warning's fix gains 5 %.
LEAST_GAIN = 1.05
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
    predicted_at_most: float | None = None  # where the evidence leaves a range
    steps: int = 0  # that the script made
    steps_counted: int | None = None
    early: tuple[str, ...] = ()  # findings before the first step
    verdict: Verdict = NOTHING

    @property
    def is_label_doubtful(self) -> bool:
        """Whether the script is hardly faster without its fault, so that a verdict without it is no mistake."""
        return self.measured is not None and self.measured < LEAST_GAIN

    @property
    def gain_error(self) -> float | None:
        """Predicted against measured speed-up, as a ratio; None on a machine too busy to compare two runs.

        Of a predicted range the value counts that comes closest to what was measured.
        """
        if self.predicted is None or self.measured is None or self.others_cores >= BUSY_CORES:
            return None
        closest = min(max(self.measured, self.predicted), max(self.predicted, self.predicted_at_most or 0.0))
        return closest / self.measured - 1


def judge(scenario: Scenario, outcome: Outcome, gained: float | None) -> Judgement:
    """Fold the log as a live run is, once a second, and compare; ``gained``: times as fast in its fixed form."""
    folded = fold(outcome.log)
    findings = folded.of_training(outcome)
    first = findings[0] if findings else None
    # below a line of a library's comes the program's own that leads there
    of_program = [p.line for p in first.where if p.file.endswith(f"/{scenario.path.name}")] if first else []
    named = set(of_program[:1])
    return Judgement(
        scenario=scenario,
        got=name_of(first),
        headline=first.headline if first else "",
        right=_is_right(scenario, first, outcome),
        place=f"{first.where[0].file.rpartition('/')[2]}:{first.where[0].line}" if first and first.where else "",
        place_right=bool(named & scenario.lines) if scenario.lines else None,
        share_error=share_error(folded.session, outcome.truth),
        verdict_s=folded.settled_after(lambda finding: _is_right(scenario, finding, outcome)),
        false_alarms=tuple(name_of(f) for f in _alarms(scenario, findings, outcome)),
        predicted=scenario.predicted(first) if first and scenario.rule else None,
        measured=gained,
        others_cores=outcome.others_cores,
        predicted_at_most=_at_most(first),
        steps=outcome.truth.steps,
        steps_counted=steps_counted(folded.session),
        early=folded.early_names,
        verdict=verdict_of(findings),
    )


def _at_most(first: Finding | None) -> float | None:
    most = first.evidence.get("speedup_at_most") if first is not None else None
    return most if isinstance(most, float) else None


class Folded(NamedTuple):
    """A log as a live run saw it, judged once a second."""

    session: Session
    verdicts: Verdicts
    early: list[Finding]  # those before the first step
    moments: list[tuple[float, Finding | None]]  # seconds from the first step on, and the primary finding then

    @property
    def findings(self) -> Sequence[Finding]:
        """Those of the end, over the whole run."""
        return self.verdicts.judge_run(self.session)

    def of_training(self, outcome: Outcome) -> list[Finding]:
        """Those of the end, without what is said of other programs that were there."""
        return [finding for finding in self.findings if not is_excused(finding, outcome)]

    @property
    def early_names(self) -> tuple[str, ...]:
        """What was found before the first step, but for what a run without a step may show."""
        return tuple(sorted({name_of(finding) for finding in self.early if not BY_NAME[finding.rule].before_steps}))

    def settled_after(self, is_right: Callable[[Finding | None], bool]) -> float | None:
        """Seconds from the first step until nothing wrong is reported any more; None where the end is wrong too."""
        settled: float | None = None
        for seconds, finding in self.moments:
            if not is_right(finding):
                settled = None
            elif settled is None:
                settled = seconds
        return settled


def fold(log: Path) -> Folded:
    """Fold a log second by second."""
    session, verdicts = Session(), Verdicts()
    early: list[Finding] = []
    moments: list[tuple[float, Finding | None]] = []
    judged_s: float | None = None
    first_s = last_s = None
    for record in read_log(str(log)):
        session.add(record)
        if isinstance(record, Steps) and record.count:
            first_s, last_s = first_s or record.t - record.window_s, record.t
        judged_s = record.t if judged_s is None else judged_s
        if session.exit is None and record.t - judged_s >= 1.0:
            findings = verdicts.judge_moment(session, record.t - judged_s)
            judged_s = record.t
            if first_s is None:
                early += findings
            else:
                moments.append((record.t - first_s, findings[0] if findings else None))
    ending_s = (last_s or 0.0) - (first_s or 0.0)
    return Folded(session, verdicts, early, [(s, finding) for s, finding in moments if s <= ending_s])


def steps_counted(session: Session) -> int | None:
    """How many steps tuimon saw; None without markers."""
    pid = session.trainer()
    counted = session.over("whole").steps(pid) if pid is not None else None
    return counted.total if counted is not None else None


def name_of(finding: Finding | None) -> str:
    """Rule and cause."""
    if finding is None:
        return "-"
    return f"{finding.rule}/{finding.cause}" if finding.cause else finding.rule


def _is_right(scenario: Scenario, finding: Finding | None, outcome: Outcome) -> bool:
    if scenario.rule is None:
        return finding is None or finding.severity in ("info", "benign") or is_excused(finding, outcome)
    return finding is not None and (finding.rule, finding.cause) == (scenario.rule, scenario.cause or finding.cause)


def is_excused(finding: Finding, outcome: Outcome) -> bool:
    """Whether it tells of other programs that were there."""
    return finding.rule == "neighbour" and outcome.others_cores >= OTHERS_CORES


def _alarms(scenario: Scenario, findings: Sequence[Finding], outcome: Outcome) -> list[Finding]:
    loud = [f for f in findings if f.severity in ("critical", "warning") and not is_excused(f, outcome)]
    return [f for f in loud if scenario.rule is None]


def share_error(session: Session, truth: Truth) -> float | None:
    """The largest error of a phase's share, 0..1; None without phases."""
    pid = session.trainer()
    table = session.over("whole").phases(pid) if pid is not None else None
    if table is None or not truth.shares:
        return None
    found = {row.name: row.share for row in table.rows}
    return max(abs(found.get(name, 0.0) - truth.shares.get(name, 0.0)) for name in _PHASES)
