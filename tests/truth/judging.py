"""Compares what tuimon reports of a run with the program's label and its own measurement."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from tests.truth.kind import Column, marked, of, times, whole_seconds
from tests.truth.running import Outcome, Truth
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rulebook import BY_NAME
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.records import Stacks, Steps
from tuimon.session.session import Session
from tuimon.sources.log.source import read_records
from tuimon.views.finding_text import gain_text

#: With so much of the machine taken by other programs, saying so is no false alarm.
OTHERS_CORES = 0.2
#: ... and with so much of it, two runs one after the other cannot be compared.
BUSY_CORES = 0.5
#: A fault whose fix gains less need not be named: a warning's fix gains 5 %.
MIN_GAIN = 1.05
#: A predicted gain may be off by this ratio.
GAIN_ERROR = 0.25
LOUD = ("critical", "warning")
#: The ends of a gain as it is shown, with their digits.
_ENDS = re.compile(r"(\d+\.(\d+))x")
_PHASES = ("data", "forward", "backward", "optimizer", "other")


class Label(Protocol):
    """The truth about a program."""

    @property
    def name(self) -> str:
        """The program's."""

    @property
    def expected(self) -> str:
        """The report that is right, for tables."""

    @property
    def is_healthy(self) -> bool:
        """True if nothing has to be reported."""

    def is_right(self, finding: Finding | None) -> bool:
        """True if this may be the first finding."""

    def is_false(self, finding: Finding) -> bool:
        """True if this warns of nothing."""

    def lines(self, finding: Finding | None) -> frozenset[tuple[str, int]]:
        """Files and lines of which this finding should name one; empty: none is to blame."""

    def gains(self, finding: Finding | None) -> tuple[float | None, float | None]:
        """The gain that this finding predicts, and the one that was measured."""


class Verdict(NamedTuple):
    """The first finding of a finished run, in what ``tuimon run`` and ``tuimon attach`` must agree."""

    name: str  # rule/cause
    severity: str
    function: str  # that it names: of several hot lines of one function any may be first

    @property
    def text(self) -> str:
        return f"{self.name} {self.severity} {self.function}".rstrip()


class Judgement(Struct, frozen=True):
    """A run against its truth, as a row of tables, and as JSON for docs/internals/accuracy.md."""

    name: str
    expected: str
    is_healthy: bool
    verdict: Verdict
    headline: str
    right: bool
    place: str  # "" if none was named
    place_right: bool | None  # None: no line is to blame
    share_error: float | None  # the largest of a phase, 0..1
    verdict_s: float | None  # from the first step until the verdict is right and stays
    false_alarms: tuple[str, ...]
    alarms: tuple[str, ...]  # warnings and criticals, false or not
    early: tuple[str, ...]  # findings before the first step
    promised: str  # the best fix's gain, as it is shown
    predicted: float | None  # the gain that is held against ``measured``
    predicted_at_most: float | None  # if the evidence leaves a range
    measured: float | None
    others_cores: float
    steps: int  # that the program made
    steps_counted: int | None
    attached: Judgement | None = None  # of another run, in whose middle tuimon attached

    @property
    def is_label_doubtful(self) -> bool:
        """True if the program is hardly faster without its fault: a verdict without it is no mistake."""
        is_comparable = not self.is_healthy and self.others_cores < BUSY_CORES
        return is_comparable and self.measured is not None and self.measured < MIN_GAIN

    @property
    def gain_error(self) -> float | None:
        """Predicted against measured gain, as a ratio; None if the machine was too busy to compare two runs.

        Of a predicted range the value counts that comes closest to what was measured.
        """
        is_comparable = self.right and self.others_cores < BUSY_CORES
        if self.predicted is None or self.measured is None or not is_comparable:
            return None
        closest = min(max(self.measured, self.predicted), max(self.predicted, self.predicted_at_most or 0.0))
        return closest / self.measured - 1

    @property
    def promised_against_measured(self) -> Literal["within", "too high", "too low"] | None:
        """The gain as it is shown against the one of the fixed program; None if the two cannot be compared.

        ``1.6x to 1.8x`` is too high if 1.33x was measured; ``up to 2.0x`` never is, ``at least 1.6x`` never too low.
        """
        ends = [(float(end), len(digits)) for end, digits in _ENDS.findall(self.promised)]
        if not ends or self.gain_error is None or self.measured is None:
            return None
        (low, digits), (high, _) = ends[0], ends[-1]
        measured = round(self.measured, digits)
        low = 0.0 if self.promised.startswith("up to") else low
        high = math.inf if self.promised.startswith("at least") else high
        return "within" if low <= measured <= high else "too high" if measured < low else "too low"


class Folded(NamedTuple):
    """A log as a live run saw it, judged once a second."""

    session: Session
    verdicts: Verdicts
    early: list[Finding]  # those before the first step
    moments: list[tuple[float, Sequence[Finding]]]  # seconds from the first step on, and the findings then

    @property
    def findings(self) -> Sequence[Finding]:
        """Those of the end, over the whole run."""
        return self.verdicts.judge_run()

    @property
    def early_names(self) -> tuple[str, ...]:
        """Findings before the first step, without those that a run without a step may have."""
        return tuple(sorted({found.name for found in self.early if not BY_NAME[found.rule].needs_no_step}))

    def settled_after(self, is_right: Callable[[Finding | None], bool], others_cores: float = 0.0) -> float | None:
        """Seconds from the first step until nothing wrong is reported any more; None if the end is wrong too."""
        settled: float | None = None
        for seconds, findings in self.moments:
            if not is_right(_first(_of_training(findings, others_cores))):
                settled = None
            elif settled is None:
                settled = seconds
        return settled


def fold(log: Path) -> Folded:
    """Fold a log second by second; without markers, from the first samples to the last instead of steps."""
    records = list(read_records(str(log)))
    has_steps = any(isinstance(record, Steps) and record.count for record in records)
    verdicts = Verdicts(session := Session())
    early: list[Finding] = []
    moments: list[tuple[float, Sequence[Finding]]] = []
    judged_s = first_s = last_s = None
    for record in records:
        session.add(record)
        if isinstance(record, Steps) and record.count if has_steps else isinstance(record, Stacks):
            first_s, last_s = first_s or record.t - record.window_s, record.t
        judged_s = record.t if judged_s is None else judged_s
        if session.exit is None and record.t - judged_s >= 1.0:
            findings = verdicts.judge()
            judged_s = record.t
            if first_s is None:
                early += findings
            else:
                moments.append((record.t - first_s, findings))
    ending_s = (last_s or 0.0) - (first_s or 0.0)
    return Folded(session, verdicts, early, [(s, findings) for s, findings in moments if s <= ending_s])


def judge(label: Label, outcome: Outcome) -> Judgement:
    """Fold the log as a live run is, once a second, and compare."""
    folded = fold(outcome.log)
    findings = _of_training(folded.findings, outcome.others_cores)
    first, lines = _first(findings), label.lines(_first(findings))
    place = own_place(first)
    fix = next(iter(first.fixes), None) if first is not None else None
    is_promised = fix is not None and fix.estimated_speedup is not None
    predicted, measured = label.gains(first)
    at_most = first.evidence.get("speedup_at_most") if first is not None else None
    return Judgement(
        name=label.name,
        expected=label.expected,
        is_healthy=label.is_healthy,
        verdict=verdict_of(findings),
        headline=first.headline if first is not None else "",
        right=label.is_right(first),
        place=f"{place[0]}:{place[1]}" if place else "",
        place_right=place in lines if lines else None,
        share_error=share_error(folded.session, outcome.truth),
        verdict_s=folded.settled_after(label.is_right, outcome.others_cores),
        false_alarms=tuple(found.name for found in findings if label.is_false(found)),
        alarms=tuple(found.name for found in findings if found.severity in LOUD),
        early=folded.early_names,
        promised=gain_text(fix) if fix is not None and is_promised else "",
        predicted=predicted,
        predicted_at_most=at_most if isinstance(at_most, float) else None,
        measured=measured,
        others_cores=outcome.others_cores,
        steps=outcome.truth.steps,
        steps_counted=steps_counted(folded.session, outcome.truth),
    )


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """The first finding that is about the training."""
    first = next((finding for finding in findings if finding.rule != "neighbour"), None)
    if first is None:
        return Verdict("-", "", "")
    place = first.where[0] if first.where and first.severity in LOUD else None
    function = f"{place.function}() {place.file.rpartition('/')[2]}" if place is not None else ""
    return Verdict(first.name, first.severity, function)


def of_best_fix(finding: Finding) -> float | None:
    """The predicted gain of a program whose fixed form does what is best."""
    return finding.estimated_speedup


def of_cheaper_line(finding: Finding) -> float | None:
    """The same of one whose fixed form lacks a piece of work: as if that cost nothing; else of the best fix."""
    free = (fix for fix in finding.fixes if fix.action.startswith("make ") and " cheaper" in fix.action)
    return next(free, finding.fixes[0]).estimated_speedup if finding.fixes else None


def _first(findings: Sequence[Finding]) -> Finding | None:
    return next(iter(findings), None)


def _of_training(findings: Sequence[Finding], others_cores: float) -> list[Finding]:
    """Without what is said of other programs that were there."""
    return [finding for finding in findings if finding.rule != "neighbour" or others_cores < OTHERS_CORES]


def own_place(finding: Finding | None) -> tuple[str, int] | None:
    """File and line that it names: below a line of a library's comes the program's own that leads there."""
    places = finding.where if finding is not None else ()
    own = (place for place in places if "/site-packages/" not in place.file and "/lib/python" not in place.file)
    named = next(own, places[0] if places else None)
    return (named.file.rpartition("/")[2], named.line) if named is not None else None


def steps_counted(session: Session, truth: Truth) -> int | None:
    """How many steps tuimon saw of the training that measured itself; None without markers."""
    counted = session.over("whole").of(truth.pid or session.trainer()).steps
    return counted.total if counted is not None else None


def share_error(session: Session, truth: Truth) -> float | None:
    """The largest error of a phase's share, 0..1; None without phases.

    The work that an evaluation does beside its batches may as well count as side work.
    """
    pid = truth.pid or session.trainer()
    table = session.over("whole").of(pid).phases
    if not table or not truth.shares:
        return None
    found = {row.name: row.share for row in table.rows}
    truth = since(session.step_stats[pid].steady_span().begin_s, truth)
    return min(
        max(abs(found.get(name, 0.0) - each.shares.get(name, 0.0)) for name in _PHASES)
        for each in (truth, with_evaluation_as_side_work(truth))
    )


def since(begin_s: float, truth: Truth) -> Truth:
    """The shares of the steps that tuimon takes for those after the warm-up: a long step may be one of the others.

    Until the first step begins, what the program waits for is data.
    """
    if not truth.course:
        return truth
    begun_s, before = next((each for each in reversed(truth.course) if each[0] <= begin_s), truth.course[0])
    before = before or {"data": max(begin_s - begun_s, 0.0)}
    spent = {part: seconds - before.get(part, 0.0) for part, seconds in truth.course[-1][1].items()}
    whole_s = sum(seconds for part, seconds in spent.items() if part != "eval")
    return replace(truth, shares={part: seconds / whole_s for part, seconds in spent.items()}) if whole_s else truth


def with_evaluation_as_side_work(truth: Truth) -> Truth:
    """The truth with the pieces of work of evaluations in the steps."""
    moved = sum(truth.in_evaluation.values())
    shares = {**truth.shares, "other": truth.shares.get("other", 0.0) + moved}
    shares["eval"] = shares.get("eval", 0.0) - moved
    whole = 1 + moved
    return replace(truth, step_ms=truth.step_ms * whole, shares={name: share / whole for name, share in shares.items()})


# -- the table


def _gain_cell(row: Judgement) -> str | None:
    """``~`` marks a gain that cannot be compared, because others used the cores or the verdict is wrong."""
    if row.predicted is None or row.measured is None:
        return times(row.predicted)
    if row.gain_error is None:
        return f"{row.predicted:.2f}x ~"
    return marked(times(row.predicted), abs(row.gain_error) <= GAIN_ERROR)


def _attached_cell(row: Judgement) -> str | None:
    """``!`` marks what differs from ``tuimon run``."""
    return None if row.attached is None else marked(row.attached.verdict.text, row.attached.verdict == row.verdict)


COLUMNS = (
    Column("program", 28, lambda row: row.name),
    Column("expected", 36, lambda row: row.expected),
    Column("verdict", 32, lambda row: marked(row.verdict.name, row.right)),
    Column("place", 32, lambda row: marked(row.place, row.place_right)),
    Column("phases", 9, lambda row: None if row.share_error is None else f"{100 * row.share_error:.1f} pts"),
    Column("steps", 15, lambda row: marked(f"{row.steps_counted} of {row.steps}", row.steps_counted == row.steps)),
    Column("settled", 7, lambda row: whole_seconds(row.verdict_s)),
    Column("predicted", 9, _gain_cell),
    Column("measured", 8, lambda row: times(row.measured)),
    Column("others", 6, lambda row: f"{row.others_cores:.1f}"),
    Column("false, early", 28, lambda row: ", ".join((*row.false_alarms, *(f"early {name}" for name in row.early)))),
    Column("attached", 40, _attached_cell),
)


def totals(rows: Sequence[Judgement]) -> list[str]:
    """The sums under the table."""
    errors = [100 * row.share_error for row in rows if row.share_error is not None]
    settled = [row.verdict_s for row in rows if row.verdict_s is not None]
    healthy = [row for row in rows if row.is_healthy]
    doubtful = [f"{row.name} ({row.measured:.2f}x)" for row in rows if row.is_label_doubtful]
    close = of(abs(row.gain_error) <= GAIN_ERROR for row in rows if row.gain_error is not None)
    lines = [
        f"verdict right   {of(row.right for row in rows)}",
        f"place right     {of(row.place_right for row in rows)}",
        f"false alarms    in {of(bool(row.false_alarms) for row in rows)} runs,"
        f" {of(bool(row.false_alarms) for row in healthy)} healthy ones",
        f"warnings        {sum(len(row.alarms) for row in healthy) / max(1, len(healthy)):.2f} a healthy run",
        f"early findings  in {of(bool(row.early) for row in rows)} runs",
        f"steps exact     {of(row.steps_counted == row.steps for row in rows)}",
        f"gain within {100 * GAIN_ERROR:.0f} %  {close}",
    ]
    if errors:
        p95 = quantiles(errors, n=20, method="inclusive")[-1] if len(errors) > 1 else errors[0]
        lines.append(f"phase error     median {median(errors):.1f}, p95 {p95:.1f} points")
    if settled:
        lines.append(f"settled after   median {median(settled):.0f} s of {len(settled)}")
    if doubtful:
        lines.append(f"hardly faster without their fault: {', '.join(doubtful)}")
    both = [(row.verdict, row.attached.verdict) for row in rows if row.attached is not None]
    if both:
        agreed = [f"{what} {of(one[n] == other[n] for one, other in both)}" for n, what in enumerate(_AGREE)]
        lines.append(f"attach as run   {', '.join(agreed)}")
    return lines


_AGREE = ("verdict", "severity", "place")
