"""The comparison in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.diagnosis.comparison.phases import PARTS, phase_share
from tuimon.diagnosis.comparison.result import Outcome, Range, Row
from tuimon.diagnosis.comparison.sides import Runs
from tuimon.diagnosis.words import percent

#: A phase is named whose share of the step changed by this and more: our choice.
_WORTH_NAMING = 0.05
#: Rules that name a phase's own work as what is left.
_COMPUTES = ("compute_bound", "compute_bound_cpu")


def headline_of(
    outcome: Outcome, speedup: Range, rows: Sequence[Row], before: Runs, after: Runs, per_sample: bool
) -> str:
    """``1.84x faster (1.79-1.88): data 62 % -> 3 %; now compute-bound in backward``."""
    what = f"{verdict_text(outcome, speedup)}{' per sample' if per_sample else ''}"
    if outcome in ("same", "unclear"):
        return what
    parts = [text for text in (_phase_text(rows, before, after), _state_text(before, after)) if text]
    return f"{what}: {'; '.join(parts)}" if parts else what


def verdict_text(outcome: Outcome, speedup: Range) -> str:
    """The speedup with its interval; of a slower run how many times as long a step takes."""
    value, low, high = speedup.value, speedup.low, speedup.high
    if outcome == "slower":
        value, low, high = 1 / value, 1 / high, 1 / low
    interval = f"{factor(low)}-{factor(high)}"
    match outcome:
        case "faster":
            return f"{factor(value)}x faster ({interval})"
        case "slower":
            return f"{factor(value)}x slower ({interval})"
        case "same":
            return f"as fast as before: {factor(value)}x ({interval})"
        case "unclear":
            return f"cannot tell: {factor(value)}x as fast, but anything from {factor(low)}x to {factor(high)}x fits"


def factor(value: float) -> str:
    """``1.84``; close to 1 with a digit more, far from it with one less."""
    if abs(value - 1) < 0.0995:
        return f"{value:.3f}"
    return f"{value:.2f}" if value < 9.995 else f"{value:.3g}"


def _phase_text(rows: Sequence[Row], before: Runs, after: Runs) -> str:
    """The phase whose share changed most, if it is no chance."""
    certain = {row.name for row in rows if row.significant}
    shares = [(name, phase_share(before, name), phase_share(after, name)) for name in PARTS if name in certain]
    name, one, other = max(shares, key=lambda row: abs(row[2] - row[1]), default=("", 0.0, 0.0))
    return f"{name} {percent(one)} -> {percent(other)}" if abs(other - one) >= _WORTH_NAMING else ""


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
