"""The comparison in one sentence, and what disturbs it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from tuimon.diagnosis.comparison.result import Outcome, Range
from tuimon.diagnosis.comparison.rows import PARTS, evaluation_part, phase_share
from tuimon.diagnosis.comparison.side import JudgedRun, Runs
from tuimon.diagnosis.threshold import SAME_WITHIN
from tuimon.diagnosis.words import after as after_time
from tuimon.diagnosis.words import percent

#: A phase is named whose share of the step changed by this and more: our choice.
_WORTH_NAMING = 0.05
#: Factors that are all this close to 1 have a digit more.
_CLOSE = 0.0995
#: If one run may be so many times faster than another by chance, the ends of the interval mean nothing.
_UNEVEN = 2
#: What shows more where chance may be all.
REPEAT = "repeat the runs"
#: Rules that name a phase's own work as what is left.
_COMPUTES = ("compute_bound", "compute_bound_cpu")
#: The rule that finds other programs using what the run uses.
_SHARED = "neighbour"


def headline_of(
    outcome: Outcome, speedup: Range, certain: Collection[str], before: Runs, after: Runs, per_sample: bool
) -> str:
    """``1.84x faster (1.79-1.88): data 62 % -> 3 %; now compute-bound in backward``; ``certain``: what has changed."""
    what = f"{verdict_text(outcome, speedup)}{' per sample' if per_sample else ''}"
    beside = _evaluation_text(before, after)
    if outcome in ("same", "unclear"):
        return f"{what}; {beside}" if beside else what
    parts = [text for text in (_phase_text(certain, before, after), beside, _state_text(before, after)) if text]
    return f"{what}: {'; '.join(parts)}" if parts else what


def verdict_text(outcome: Outcome, speedup: Range) -> str:
    """The speedup with its interval; of a slower run how many times as long a step takes."""
    value, low, high = speedup.value, speedup.low, speedup.high
    if outcome == "slower":
        value, low, high = 1 / value, 1 / high, 1 / low
    digits = 3 if max(abs(each - 1) for each in (value, low, high)) < _CLOSE else 2
    middle, least, most = (factor(each, digits) for each in (value, low, high))
    match outcome:
        case "faster" | "slower":
            return f"{middle}x {outcome} ({least}-{most})"
        case "same":
            return f"no difference: {middle}x ({least}-{most})"
        case "unclear" if high > _UNEVEN**2 * low:
            return f"cannot tell: runs this uneven differ by a factor of {_UNEVEN} or more by chance; {REPEAT}"
        case "unclear":
            return f"cannot tell: between {factor(1 / low, digits)}x slower and {most}x faster; {REPEAT}"


def factor(value: float, digits: int = 2) -> str:
    """``1.84``; far from 1 with a digit less."""
    return f"{value:.{digits}f}" if value < 9.995 else f"{value:.3g}"


def _phase_text(certain: Collection[str], before: Runs, after: Runs) -> str:
    """The phase whose share changed most, of those whose change is no chance."""
    shares = [(name, phase_share(before, name), phase_share(after, name)) for name in PARTS if name in certain]
    name, one, other = max(shares, key=lambda row: abs(row[2] - row[1]), default=("", 0.0, 0.0))
    return f"{name} {percent(one)} -> {percent(other)}" if abs(other - one) >= _WORTH_NAMING else ""


def _evaluation_text(before: Runs, after: Runs) -> str:
    """How much of the time is evaluation, where that differs: it is beside the steps whose time is compared."""
    one, other = (part / (1 + part) for part in map(evaluation_part, (before, after)))
    return f"evaluation {percent(one)} -> {percent(other)} of the time" if abs(other - one) >= _WORTH_NAMING else ""


def _state_text(before: Runs, after: Runs) -> str:
    """The finding that holds the later side back: its first one."""
    finding = next(iter(after[0].figures.findings), None)
    earlier = next(iter(before[0].figures.findings), None)
    if finding is None:
        return ""
    word = "still" if earlier is not None and (earlier.rule, earlier.cause) == (finding.rule, finding.cause) else "now"
    if finding.rule in _COMPUTES:
        return f"{word} compute-bound in {max(PARTS, key=lambda name: phase_share(after, name))}"
    return f"{word} {finding.rule.replace('_', '-')}"


# -- what disturbs it


def notes_of(before: Runs, after: Runs) -> list[str]:
    """As sentences, the gravest first."""
    sides = (("BEFORE", before), ("AFTER", after))
    found = [note for name, runs in sides for run in runs for note in (*_held_up(name, run), *_shifted(name, run))]
    found += [note for name, runs in sides for run in runs for note in _trend(name, run)]
    single = [runs[0] for runs in (before, after) if len(runs) == 1]
    if single:
        assumed = 100 * math.sqrt(max(run.assumed_variance + run.lasting_variance for run in single))
        which = "per side" if len(single) == 2 else "on one side"
        found.append(
            f"With one run {which}, {assumed:.1f} % run-to-run noise is assumed; record several runs to measure it"
        )
    return found


def _held_up(name: str, run: JudgedRun) -> Iterable[str]:
    shared = next((each for each in run.figures.findings if each.rule == _SHARED and each.severity != "benign"), None)
    ratio = run.figures.starved.ratio
    if ratio >= SAME_WITHIN:
        yield (
            f"Other programs ran beside {name}: a thread waited for a core {percent(ratio)} of the time; the interval"
            " allows for what that may have cost. Repeat the run on an idle machine"
        )
    elif shared is not None:
        allowed = "; the interval allows for what that may have cost" if run.figures.gpu_taken else ""
        yield f"{name} was not alone: {shared.headline}{allowed}"


def _shifted(name: str, run: JudgedRun) -> Iterable[str]:
    if run.shift is not None:
        since_s = run.steady.rows[run.shift.at].begin_s - run.steady.rows[0].begin_s + run.warmup_s
        more = run.shift.ratio - 1
        yield (
            f"Steps of {name} take {percent(abs(more))} {'longer' if more > 0 else 'less'} from"
            f" {after_time(since_s)} on; the interval allows for both levels"
        )


def _trend(name: str, run: JudgedRun) -> Iterable[str]:
    if run.trend is not None:
        change = run.trend[-1] / run.trend[0] - 1
        yield (
            f"Steps of {name} {'grow' if change > 0 else 'shrink'} by {percent(abs(change))} over the run;"
            " only steps with the same numbers are compared"
        )
