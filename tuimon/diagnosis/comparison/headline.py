"""The comparison in one sentence."""

from __future__ import annotations

from collections.abc import Collection

from tuimon.diagnosis.comparison.outcome.result import Outcome, Range
from tuimon.diagnosis.comparison.side.sides import Runs
from tuimon.diagnosis.comparison.table.phases import PARTS, evaluation_part, phase_share
from tuimon.diagnosis.words import percent

#: A phase is named whose share of the step changed by this and more: our choice.
_WORTH_NAMING = 0.05
#: Factors that are all this close to 1 have a digit more.
_CLOSE = 0.0995
#: Where by chance a run may be this many times as fast as another, the ends of the interval mean nothing.
_UNEVEN = 2
#: Rules that name a phase's own work as what is left.
_COMPUTES = ("compute_bound", "compute_bound_cpu")


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
            return f"as fast as before: {middle}x ({least}-{most})"
        case "unclear" if high > _UNEVEN**2 * low:
            by_chance = f"runs this uneven differ by a factor of {_UNEVEN} and more by chance"
            return f"cannot tell: {middle}x as fast, but {by_chance}"
        case "unclear":
            return f"cannot tell: {middle}x as fast, but anything from {least}x to {most}x fits"


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
    """What holds the later side back: its first finding."""
    finding = next(iter(after[0].figures.findings), None)
    earlier = next(iter(before[0].figures.findings), None)
    if finding is None:
        return ""
    word = "still" if earlier is not None and (earlier.rule, earlier.cause) == (finding.rule, finding.cause) else "now"
    if finding.rule in _COMPUTES:
        return f"{word} compute-bound in {max(PARTS, key=lambda name: phase_share(after, name))}"
    return f"{word} {finding.rule.replace('_', '-')}"
