"""Findings in words: a rule's title, what a fix gains, which rules could not judge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuimon.views.format import plain

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding

#: Gains below this factor are shown with one more digit.
_SMALL = 1.2


def rule_title(rule: str) -> str:
    """A rule's name as people read it: ``INPUT-BOUND``."""
    return plain(rule).replace("_", "-").upper()


def speedup(finding: Finding) -> str:
    """``1.6–1.8×`` or ``~2.1×``: what the best fix gains, small gains with one more digit; empty where unknown."""
    if finding.estimated_speedup is None:
        return ""
    least, most = finding.speedup_at_least or finding.estimated_speedup, finding.fixes[0].high
    if is_open(most):
        return f"≥{_range(least, least)[0]}×"
    ends = _range(least, most or finding.estimated_speedup)
    return f"~{ends[0]}×" if ends[0] == ends[1] else f"{'–'.join(ends)}×"


def _range(low: float, high: float) -> tuple[str, str]:
    digits = 2 if high < _SMALL else 1
    return f"{low:.{digits}f}", f"{high:.{digits}f}"


NO_FINDING = "No finding: nothing that the rules know holds this training back."
TOO_FEW_STEPS = "Too few steps to say what holds this training back."
ONLY_MINOR = "No finding whose fix gains 5 % or more."


def none_found(report: Mapping[str, Any]) -> str:  # Any: the report's JSON
    """The verdict on a training where no rule has found anything."""
    return NO_FINDING if report["phases"] else TOO_FEW_STEPS


def finding_gain(fixes: Sequence[Mapping[str, Any]]) -> str:  # Any: the report's JSON
    """What the best of these fixes gains, a range where the evidence leaves one; empty where nothing is known of it."""
    if not fixes:
        return ""
    estimated, low, high = (fixes[0][name] for name in ("estimated_speedup", "low", "high"))
    if not estimated:
        return f"Gain: not certain; training at most {_range(high, high)[0]} times as fast" if high else ""
    times = times_text(estimated, low, high)
    return f"Gain: training {times if ' to ' in times or 'least' in times else f'up to {times}'}"


def fix_text(action: str, estimated: float | None, low: float | None, high: float | None) -> str:
    """``make f() cheaper: 2.2 to 4.5 times as fast``: one fix with what it gains, where that is known."""
    return f"{plain(action)}: {times_text(estimated, low, high)}" if estimated else plain(action)


def times_text(estimated: float, low: float | None, high: float | None) -> str:
    """``2.2 to 4.5 times as fast``; ``at least 2.2 times as fast`` where no upper end is known."""
    least, most = _range(low or estimated, estimated if is_open(high) else high or estimated)
    if is_open(high):
        return f"at least {least} times as fast"
    return f"{least if least == most else f'{least} to {most}'} times as fast"


def is_open(high: float | None) -> bool:
    """Whether a gain has no upper end: infinite in findings, null in JSON."""
    return high is None or math.isinf(high)


def rules_by_reason(unjudged: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The rules that could not judge, by the reason why; of pairs (rule, reason)."""
    rules: dict[str, list[str]] = {}
    for rule, reason in unjudged:
        rules.setdefault(reason, []).append(rule)
    return rules


def sentence(text: str) -> str:
    """The text with a capital where a word begins it, and as it is where code does: ``save() takes ...``."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text
