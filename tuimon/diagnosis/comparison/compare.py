"""Two sides compared: refused where that means nothing, else the speedup, every row, and what disturbs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.comparison.headline import headline_of
from tuimon.diagnosis.comparison.notes import notes_of
from tuimon.diagnosis.comparison.outcome.likeness import Unlike, unlike
from tuimon.diagnosis.comparison.outcome.result import Comparison, Side
from tuimon.diagnosis.comparison.outcome.speed import outcome_of, speedup_of
from tuimon.diagnosis.comparison.side.figures import RunFigures
from tuimon.diagnosis.comparison.side.judged_run import LEAST_BATCHES, JudgedRun, judged
from tuimon.diagnosis.comparison.side.sides import Runs
from tuimon.diagnosis.comparison.table.findings import finding_changes, promise_of
from tuimon.diagnosis.comparison.table.lines import line_changes
from tuimon.diagnosis.comparison.table.rows import rows_of
from tuimon.errors import NotComparable


def compare(before: Sequence[RunFigures], after: Sequence[RunFigures], *, anyway: bool = False) -> Comparison:
    """Compare two sides of one run or more each. Raises NotComparable; ``anyway``: not where only machines differ."""
    one, other, differing, per_sample = ready(before, after, anyway=anyway)
    sides = (one, other)
    speedup, rows = speedup_of(*sides, per_sample=per_sample), rows_of(*sides)
    outcome = outcome_of(speedup)
    certain = {row.name for row in rows if row.significant}
    return Comparison(
        headline=headline_of(outcome, speedup, certain, *sides, per_sample),
        outcome=outcome,
        speedup=speedup,
        per_sample=per_sample,
        notes=notes_of(*sides),
        before=_side(sides[0]),
        after=_side(sides[1]),
        unlike=differing,
        rows=rows,
        lines=line_changes(*sides),
        findings=finding_changes(*sides),
        promise=promise_of(*sides, speedup),
    )


class Ready(NamedTuple):
    """Two sides that can be compared."""

    before: Runs
    after: Runs
    unlike: list[Unlike]
    per_sample: bool


def ready(before: Sequence[RunFigures], after: Sequence[RunFigures], *, anyway: bool = False) -> Ready:
    """The part of each run that is compared. Raises NotComparable."""
    differing = unlike([run.facts for run in before], [run.facts for run in after])
    _refuse(differing, anyway=anyway)
    runs = [*before, *after]
    is_part = runs[0].process is not None and all(run.process == runs[0].process for run in runs)
    sides = _aligned(_judged(before, "BEFORE", is_part), _judged(after, "AFTER", is_part))
    return Ready(*sides, differing, any(each.effect == "per sample" for each in differing))


def _refuse(differing: Sequence[Unlike], *, anyway: bool) -> None:
    void = [each for each in differing if each.effect == "void"]
    if not void or anyway:
        return
    what = "; ".join(f"{each.name} {each.before} before, {each.after} after" for each in void)
    raise NotComparable(
        f"what a change of the code gained is unknown, as more than that differs: {what}",
        "Record both on the same machine with the same settings, or compare them nevertheless with --anyway",
    )


def _judged(runs: Sequence[RunFigures], side: str, is_part: bool) -> list[JudgedRun]:
    found = [judged(run, is_part=is_part) for run in runs]
    for run in found:
        _check(run, side)
    return found


def _check(run: JudgedRun, side: str) -> None:
    name, steady = run.figures.name, run.steady
    if not run.figures.stretches:
        raise NotComparable(
            f"{side} ({name}) has no step that was measured",
            "Steps are measured by markers: record it by tuimon run, or attach --inject",
        )
    if not run.is_long_enough:
        raise NotComparable(
            f"{side} ({name}) is too short: {steady.steps} steps in {steady.seconds:.0f} s after its warm-up",
            f"Record at least {LEAST_BATCHES} steps and {LEAST_BATCHES} s after the warm-up, better a minute",
        )


def _aligned(before: list[JudgedRun], after: list[JudgedRun]) -> tuple[Runs, Runs]:
    """Where the steps of a run grow or shrink all the time, only steps of the same numbers are compared."""
    runs = [*before, *after]
    if not any(run.trend for run in runs):
        return before, after
    first = max(run.steady.rows[0].first_step for run in runs)
    last = min(run.steady.rows[-1].first_step + run.steady.rows[-1].steps for run in runs)
    cut = [[run.within_steps(first, last) for run in side] for side in (before, after)]
    if not all(run.is_long_enough for side in cut for run in side):
        raise NotComparable(
            "the steps of one side grow or shrink all the time, and too few of both sides have the same numbers",
            "Record both from the beginning, for as many steps",
        )
    return cut[0], cut[1]


def _side(runs: Runs) -> Side:
    return Side(
        [run.figures.name for run in runs],
        runs[0].figures.facts,
        sum(run.steady.steps for run in runs),
        round(sum(run.steady.seconds for run in runs), 3),
        round(sum(run.warmup_s for run in runs), 3),
    )
