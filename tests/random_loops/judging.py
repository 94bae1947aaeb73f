"""Compares what tuimon says of a random loop with what the loop measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tests.random_loops.frameworks.catalogue import FRAMEWORKS
from tests.random_loops.plan import INPUT_PLACES, SIDE_PLACES, Plan
from tests.random_loops.works import CAUSE
from tests.scenarios.gains import of_cheaper_line
from tests.scenarios.judging import fold, is_excused, name_of, share_error, steps_counted
from tests.scenarios.running import Outcome, Truth
from tests.scenarios.verdict import Verdict, verdict_of
from tuimon.diagnosis.finding import Finding
from tuimon.session.session import Session

#: A part of the step that is worth less than this to the user is nothing to warn of (a warning's fix gains 5 %) ...
HEALTHY_GAIN = 1.05
#: ... and one worth more has to be named; between the two either is right.
TOLD_GAIN = 1.12
#: Parts whose gains lie so close together are as good as equal.
NEARLY = 1.15
#: A piece of work that takes at least this share of its part of the step is its place.
MOST = 0.5
#: Parts whose cost scripts are given; that of the update is what their model makes it.
PLANTED = ("data", "side", "model")
#: Rules that name a part of the step here.
PART_OF_RULE = {"input_bound": "data", "side_work": "side", "optimizer_bound": "optimizer", "gc_pauses": "side"}
#: The cause of compute_bound_cpu that does.
IN_MODEL = "python"
LOUD = ("critical", "warning")
#: Where the pieces of a part stand.
PLACES_OF = {"side": SIDE_PLACES, "data": (*INPUT_PLACES, "batch"), "model": ("model",)}


@dataclass(frozen=True)
class Judged:
    """One row."""

    plan: Plan
    gains: dict[str, float]  # what each part of the step is worth: times as fast without it
    accepted: frozenset[str]  # parts that were planted, of which one must be named first; empty: healthy
    may_be_silent: bool
    got: str
    headline: str
    right: bool
    place: str
    place_right: bool | None
    share_error: float | None
    steps: int
    steps_counted: int | None
    verdict_s: float | None
    early: tuple[str, ...]  # findings before the first step
    false_alarms: tuple[str, ...]
    alarms: tuple[str, ...]  # warnings and criticals, false or not
    predicted: float | None
    measured: float | None
    others_cores: float
    verdict: Verdict
    attached: Verdict | None  # of attach in the middle of another run

    @property
    def healthy(self) -> bool:
        """Whether there is nothing to complain of."""
        return not self.accepted

    @property
    def gain_error(self) -> float | None:
        """Predicted against measured."""
        if self.predicted is None or self.measured is None or not self.right or self.others_cores >= 0.5:
            return None
        return self.predicted / self.measured - 1


def judge(
    plan: Plan, script: Path, outcome: Outcome, gained: dict[str, float], attached: Verdict | None = None
) -> Judged:
    """``gained``: times as fast without a piece, by the piece's name."""
    truth, folded = outcome.truth, fold(outcome.log)
    findings = folded.of_training(outcome)
    first = findings[0] if findings else None
    gains = gains_of(truth)
    accepted = accepted_parts(gains)
    silent = max(gains[part] for part in PLANTED) < TOLD_GAIN
    pieces = _pieces_of(plan, _part(first), truth.pieces | truth.in_model | truth.in_evaluation)
    saves_ms = {name: truth.wall_ms * (1 - 1 / times) for name, times in gained.items()}
    part_ms = truth.wall_ms * (1 - 1 / gains.get(_part(first) or "", 1.0))
    pieces = [name for name in pieces if is_most(part_ms, saves_ms.get(name))]
    lines = _lines_of(script, pieces)
    named = _own_place(first)
    measured = measured_gains(plan, gained)
    possible = gains | {"side": max(gains["side"], _around(plan, truth))}
    possible = {part: max(gain, measured.get(part, 1.0)) for part, gain in possible.items()}
    is_right = lambda finding: _is_right(finding, possible, silent, outcome)  # noqa: E731
    return Judged(
        plan=plan,
        gains=gains,
        accepted=accepted,
        may_be_silent=silent,
        got=name_of(first),
        headline=first.headline if first else "",
        right=is_right(first),
        place=f"{named[0]}:{named[1]}" if named else "",
        place_right=named in lines if lines and first is not None and first.severity in LOUD else None,
        share_error=_share_error(folded.session, truth),
        steps=truth.steps,
        steps_counted=steps_counted(folded.session),
        verdict_s=folded.settled_after(is_right),
        early=folded.early_names,
        false_alarms=tuple(name_of(f) for f in findings if _is_false(f, possible, outcome)),
        alarms=tuple(name_of(f) for f in findings if f.severity in LOUD),
        predicted=of_cheaper_line(first) if first is not None and accepted else None,
        measured=max((gained[piece] for piece in pieces if piece in gained), default=None),
        others_cores=outcome.others_cores,
        verdict=verdict_of(findings),
        attached=attached,
    )


def gains_of(truth: Truth) -> dict[str, float]:
    """What a step would gain without waiting for data, without its side work and evaluation, and so on."""
    shares = truth.shares
    whole = 1 + shares.get("eval", 0.0)
    parts = {
        "data": shares.get("data", 0.0),
        "side": sum(truth.pieces.values()) + shares.get("eval", 0.0),
        "model": sum(truth.in_model.values()),
        "optimizer": shares.get("optimizer", 0.0),
    }
    return {name: whole / max(whole - share, 1e-3) for name, share in parts.items()}


def measured_gains(plan: Plan, gained: dict[str, float]) -> dict[str, float]:
    """The most that one piece of a part gained, by part: where threads share cores, more than its share."""
    return {
        part: max(gained[piece.name] for piece in pieces)
        for part, places in PLACES_OF.items()
        if (pieces := [piece for piece in plan.pieces if piece.place in places and piece.name in gained])
    }


def _around(plan: Plan, truth: Truth) -> float:
    """The gain without all that is done beside the model: what a framework does there may be named, and need not.

    Its loggers and checkpoints are no pieces of work that were planted.
    """
    if plan.shape not in FRAMEWORKS:
        return 1.0
    evaluation = truth.shares.get("eval", 0.0)
    return (1 + evaluation) / max(1 - truth.shares.get("other", 0.0), 1e-3)


def accepted_parts(gains: dict[str, float]) -> frozenset[str]:
    """The parts that were planted and may be named first."""
    most = max(gains[name] for name in PLANTED)
    if most < HEALTHY_GAIN:
        return frozenset()
    return frozenset(name for name in PLANTED if gains[name] >= HEALTHY_GAIN and gains[name] * NEARLY >= most)


def may_be_first(part: str | None, gains: dict[str, float]) -> bool:
    """Whether no other part is worth more; an update that takes long may be named, as some can be made cheaper."""
    if part is None or gains.get(part, 1.0) < HEALTHY_GAIN:
        return False
    rivals = gains if part not in PLANTED else PLANTED
    return gains[part] * NEARLY >= max(gains[name] for name in rivals)


def _part(finding: Finding | None) -> str | None:
    if finding is None:
        return None
    return "model" if finding.cause == IN_MODEL else PART_OF_RULE.get(finding.rule)


def _is_right(finding: Finding | None, gains: dict[str, float], silent: bool, outcome: Outcome) -> bool:
    if finding is None or finding.severity not in LOUD or is_excused(finding, outcome):
        return silent or not accepted_parts(gains)
    return may_be_first(_part(finding), gains)


def _is_false(finding: Finding, gains: dict[str, float], outcome: Outcome) -> bool:
    """Whether it warns of something that is worth nothing."""
    if finding.severity not in LOUD or is_excused(finding, outcome):
        return False
    part = _part(finding)
    return part not in gains or gains[part] < HEALTHY_GAIN


def _pieces_of(plan: Plan, part: str | None, shares: dict[str, float]) -> list[str]:
    """The pieces of work that this part consists of, without what is tiny."""
    places = PLACES_OF.get(part or "", ())
    names = [piece.name for piece in plan.pieces if piece.place in places and piece.name != "tiny"]
    most = max((shares.get(name, 0.0) for name in names), default=0.0)
    return [name for name in names if shares.get(name, 0.0) * NEARLY >= most]


def is_most(part_ms: float, saved_ms: float | None) -> bool:
    """Whether a piece of work takes most of its part of the step, as far as the step without it was timed.

    What else a wait for data consists of (starting workers, handing batches over) has no line of the script.
    """
    return saved_ms is None or saved_ms >= MOST * part_ms


def _share_error(session: Session, truth: Truth) -> float | None:
    """The largest error of a phase: what an evaluation does beside its batches may as well count as side work."""
    errors = [share_error(session, each) for each in (truth, with_evaluation_as_side_work(truth))]
    return min((error for error in errors if error is not None), default=None)


def with_evaluation_as_side_work(truth: Truth) -> Truth:
    """The truth with the pieces of work of evaluations in the steps."""
    moved = sum(truth.in_evaluation.values())
    shares = {**truth.shares, "other": truth.shares.get("other", 0.0) + moved}
    shares["eval"] = shares.get("eval", 0.0) - moved
    whole = 1 + moved
    return replace(truth, step_ms=truth.step_ms * whole, shares={name: share / whole for name, share in shares.items()})


def _own_place(finding: Finding | None) -> tuple[str, int] | None:
    """File and line that it names: below a line of a library's comes the program's own that leads there."""
    places = finding.where if finding is not None else ()
    named = next((place for place in places if "/site-packages/" not in place.file), places[0] if places else None)
    return (named.file.rpartition("/")[2], named.line) if named is not None else None


def _lines_of(script: Path, pieces: list[str]) -> set[tuple[str, int]]:
    """Files and lines of the program that do their work."""
    marks = tuple(f"{CAUSE}{piece}" for piece in pieces)
    return {
        (path.name, n)
        for path in script.parent.glob("*.py")
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if marks and line.endswith(marks)
    }
