"""What disturbs a comparison, and what was taken out of it, as sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tuimon.diagnosis.comparison.outcome.undisturbed import STARVED
from tuimon.diagnosis.comparison.side.judged_run import JudgedRun
from tuimon.diagnosis.comparison.side.sides import RUN_DEVIATION, Runs, run_variance
from tuimon.diagnosis.words import after as after_time
from tuimon.diagnosis.words import percent

#: The rule that finds other programs using what the run uses.
_SHARED = "neighbour"


def notes_of(before: Runs, after: Runs) -> list[str]:
    """The gravest first."""
    sides = (("BEFORE", before), ("AFTER", after))
    found = [note for name, runs in sides for run in runs for note in (*_held_up(name, run), *_shifted(name, run))]
    found += [note for name, runs in sides for run in runs for note in _trend(name, run)]
    single = [runs[0] for runs in (before, after) if len(runs) == 1]
    if single:
        assumed = math.sqrt(max(map(run_variance, single)))
        varies = ", as it varies over seconds" if assumed > 2 * RUN_DEVIATION else ""
        found.append(
            f"a single run cannot show how much runs differ by themselves: {100 * assumed:.1f} % is assumed{varies};"
            " folders of several runs would show it"
        )
    return found


def _held_up(name: str, run: JudgedRun) -> Iterable[str]:
    shared = next((each for each in run.figures.findings if each.rule == _SHARED and each.severity != "benign"), None)
    if run.figures.starved.ratio >= STARVED:
        yield (
            f"other programs ran beside {name}: a thread waited for a core {percent(run.figures.starved.ratio)} of the"
            " time; what that cost is taken out as far as it is known, and the interval allows for the rest"
        )
    elif shared is not None:
        allowed = "; the interval allows for what that may have cost" if run.figures.gpu_taken else ""
        yield f"{name} was not alone: {shared.headline}{allowed}"


def _shifted(name: str, run: JudgedRun) -> Iterable[str]:
    if run.shift is not None:
        since_s = run.steady.rows[run.shift.at].begin_s - run.steady.rows[0].begin_s + run.warmup_s
        more = run.shift.ratio - 1
        yield (
            f"steps of {name} take {percent(abs(more))} {'longer' if more > 0 else 'less'} from"
            f" {after_time(since_s)} on; the interval holds both"
        )


def _trend(name: str, run: JudgedRun) -> Iterable[str]:
    if run.trend is not None:
        change = run.trend[-1] / run.trend[0] - 1
        yield (
            f"steps of {name} {'grow' if change > 0 else 'shrink'} by {percent(abs(change))} over the run;"
            " steps of the same numbers are compared"
        )
