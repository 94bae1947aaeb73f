"""What disturbs a comparison, and what was taken out of it, as sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tuimon.diagnosis.comparison.outcome.undisturbed import STARVED
from tuimon.diagnosis.comparison.side.judged_run import JudgedRun
from tuimon.diagnosis.comparison.side.sides import CORES_DEVIATION, RUN_DEVIATION, Runs, run_variance
from tuimon.diagnosis.words import after as after_time
from tuimon.diagnosis.words import percent

#: The rule that finds other programs using what the run uses.
_SHARED = "neighbour"


def notes_of(before: Runs, after: Runs) -> list[str]:
    """The gravest first."""
    sides = (("BEFORE", before), ("AFTER", after))
    found = [note for name, runs in sides for run in runs for note in (*_held_up(name, run), *_shifted(name, run))]
    found += [note for name, runs in sides for run in runs for note in _trend(name, run)]
    single = [runs[0] for runs in (before, after) if len(runs) == 1 and not runs[0].is_part]
    if before[0].is_part:
        found.append("both sides are from one process, so no spread between runs is added")
    if single:
        found.append(_assumed(max(single, key=run_variance)))
    return found


def _assumed(run: JudgedRun) -> str:
    assumed = math.sqrt(run_variance(run))
    why = ""
    if assumed > 2 * RUN_DEVIATION:
        lasts = run.lasting_variance > (CORES_DEVIATION * run.on_cores) ** 2
        why = ", as it varies over seconds" if lasts else f", as {percent(run.on_cores)} of a step is work on CPU cores"
    return (
        f"a single run cannot show how much runs differ by themselves: {100 * assumed:.1f} % is assumed{why};"
        " folders of several runs would show it"
    )


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
