"""Findings that are gone and new, and whether the gain that one promised came."""

from __future__ import annotations

from tuimon.diagnosis.comparison.figures import RunFacts
from tuimon.diagnosis.comparison.result import Became, FindingChange, Kept, Promise, Range
from tuimon.diagnosis.comparison.rows import evaluation_part
from tuimon.diagnosis.comparison.side import Runs
from tuimon.diagnosis.finding import Finding, Fix

_Key = tuple[str, str | None]


def finding_changes(before: Runs, after: Runs) -> list[FindingChange]:
    """Gone, new, then those that stay; a rule with another cause is another finding.

    Several runs have the findings that most of them have.
    """
    one, other = _findings(before), _findings(after)
    gone = [_change("gone", finding, None) for key, finding in one.items() if key not in other]
    new = [_change("new", None, finding) for key, finding in other.items() if key not in one]
    stays = [_change("stays", one[key], finding) for key, finding in other.items() if key in one]
    return [*gone, *new, *stays]


def promise_of(before: Runs, after: Runs, speedup: Range) -> Promise | None:
    """The gain that the gravest finding that is gone estimated for its fix; None where it had no estimate.

    The number of workers may show which of its fixes was made; else the best one counts, unless another argument may
    have ended the finding.
    """
    other = _findings(after)
    gone = [finding for key, finding in _findings(before).items() if key not in other]
    for finding in gone:
        fix = _done(finding, before[0].figures.facts, after[0].figures.facts)
        if fix is None or fix.estimated_speedup is None or fix.gain is None:
            continue
        estimated = Range(fix.estimated_speedup, *fix.gain)
        measured = _with_evaluation(speedup, before, after, shorter=finding.cause == "evaluation")
        return Promise(finding.rule, fix.action, estimated, measured, _kept(estimated, measured))
    return None


def _with_evaluation(speedup: Range, before: Runs, after: Runs, *, shorter: bool) -> Range:
    """The speedup of steps with their part of the evaluation: of as much of it again, unless it was to be ``shorter``.

    How much of it a run holds depends on where it ends.
    """
    beside = evaluation_part(before)
    beside_after = evaluation_part(after) if shorter else beside
    return Range(*((1 + beside) / (1 / gain + beside_after) for gain in (speedup.value, speedup.low, speedup.high)))


def _kept(estimated: Range, measured: Range) -> Kept:
    if measured.low > estimated.high:
        return "more"
    if measured.high < estimated.low:
        return "less"
    return "unclear" if measured.low <= 1.0 <= measured.high else "kept"


def _done(finding: Finding, before: RunFacts, after: RunFacts) -> Fix | None:
    has_changed = before.workers != after.workers
    made = [fix for fix in finding.fixes if (fix.change is not None and fix.change.what == "workers") == has_changed]
    if _is_same_program(before, after):
        return next(iter(made or finding.fixes), None)
    return made[0] if made and has_changed else None


def _is_same_program(before: RunFacts, after: RunFacts) -> bool:
    """False where the arguments of one program differ: that may be all that has changed, and its code not."""
    one, other = ([word for word in facts.command if word.endswith(".py")] for facts in (before, after))
    return before.command == after.command or one != other


def _findings(runs: Runs) -> dict[_Key, Finding]:
    """The findings that at least half of the runs have, the first run's first."""
    every: dict[_Key, list[Finding]] = {}
    for run in runs:
        for finding in run.figures.findings:
            every.setdefault((finding.rule, finding.cause), []).append(finding)
    return {key: found[0] for key, found in every.items() if 2 * len(found) >= len(runs)}


def _change(change: Became, before: Finding | None, after: Finding | None) -> FindingChange:
    shown = after or before
    assert shown is not None
    return FindingChange(
        change, shown.rule, shown.cause, shown.severity, shown.headline,
        before.share_of_step if before else None, after.share_of_step if after else None,
    )  # fmt: skip
