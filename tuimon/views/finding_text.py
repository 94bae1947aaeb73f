"""Findings in words: a rule's title, what a fix gains, which rules could not judge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tuimon.diagnosis.words import at
from tuimon.records import Place
from tuimon.text import code_place
from tuimon.views.format import plain

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.views.report_types import FindingJson, FixJson, PlaceJson, Report

#: Fixes of a finding that lines of text show; all of them are behind ``v``, in JSON and on the page.
MOST_FIXES = 3
#: Gains below this factor are shown with one more digit.
_SMALL = 1.2


def rule_title(rule: str) -> str:
    """A rule's name as people read it: ``INPUT-BOUND``."""
    return plain(rule).replace("_", "-").upper()


def verdict_name(name: str | None) -> str:
    """``INPUT-BOUND (no workers)`` of ``input_bound/no_workers``; ``nothing found`` of None."""
    if name is None:
        return "nothing found"
    rule, _, cause = name.partition("/")
    return rule_title(rule) + (f" ({plain(cause).replace('_', ' ')})" if cause else "")


def headline_text(headline: str, where: Sequence[Place | PlaceJson]) -> str:
    """``GPU idle 84 % of each step: ..., at forward() net.py:16``: a headline with the first place, once."""
    return plain(", ".join(filter(None, (headline, place_text(headline, where)))))


def place_text(headline: str, where: Sequence[Place | PlaceJson]) -> str:
    """``at forward() net.py:16``: the first place; empty if there is none, or the headline names it."""
    if not where:
        return ""
    place = Place(where[0].file, where[0].line, where[0].function)
    return "" if code_place(place.file, place.line) in headline else f"at {at(place)}"


def speedup(finding: Finding) -> str:
    """``1.6–1.8x``, ``≥3.8x`` or ``up to 4.5x``: what the best fix gains; empty if it is unknown."""
    fix = finding.best
    if fix.estimated_speedup is None or fix.gain is None:
        return ""
    least, most = fix.gain
    if math.isinf(most):
        return f"≥{_range(least, least)[0]}x"
    low, high = _range(least, most)
    return f"up to {high}x" if low == high or float(low) <= 1.0 else f"{low}–{high}x"


def _range(low: float, high: float) -> tuple[str, str]:
    """Both ends of a gain; small gains with one more digit."""
    digits = 2 if high < _SMALL else 1
    return f"{low:.{digits}f}", f"{high:.{digits}f}"


NO_FINDING = "No finding: no rule sees anything that holds this training back."
TOO_FEW_STEPS = "Too few steps to say what holds this training back."
NO_TRAINING = "Only the pace is known: the steps have no batch, backward pass or update that was seen."
ONLY_MINOR = "No finding whose fix gains 5 % or more."
#: An unknown gain is not a small one.
NONE_KNOWN = "No fix is known to gain 5 % or more; the gain of the first is not known."
#: Nor is one of which only the least is small.
NONE_SURE = "No fix is certain to gain 5 % or more."


def only_minor(finding: FindingJson) -> str:
    """The verdict on a training whose findings are all minor, by the first of them."""
    from tuimon.diagnosis.finding import WARNING_GAIN  # noqa: PLC0415  (who has a finding has loaded it; the first frame has none)

    estimated = finding.estimated_speedup
    if finding.fixes and estimated is None and finding.speedup_at_least is None:
        return NONE_KNOWN
    return NONE_SURE if (estimated or 1.0) >= WARNING_GAIN else ONLY_MINOR


def none_found(report: Report) -> str:
    """The verdict on a training where no rule has found anything."""
    from tuimon.diagnosis.evidence.steps import FIRST_STEPS  # noqa: PLC0415  (as above)

    if not report.phases or 0 < report.steps.total < FIRST_STEPS:
        return TOO_FEW_STEPS
    trains = any(phase.share for phase in report.phases if phase.name not in ("other", "eval"))
    return NO_FINDING if trains else NO_TRAINING


def finding_gain(fixes: Sequence[FixJson]) -> str:
    """``2.2x to 4.5x faster``: what the best of these fixes gains; empty if nothing is known of it."""
    if not fixes:
        return ""
    best = fixes[0]
    if not best.estimated_speedup:
        return f"not certain, up to {_range(best.high, best.high)[0]}x faster" if best.high is not None else ""
    return times_text(best.estimated_speedup, best.low, best.high)


def fix_text(fix: FixJson) -> str:
    """``make f() cheaper (2.2x to 4.5x faster)``: one fix with what it gains, if that is known."""
    gained = f" ({times_text(fix.estimated_speedup, fix.low, fix.high)})" if fix.estimated_speedup else ""
    return f"{plain(fix.action)}{gained}"


def times_text(estimated: float, low: float | None, high: float | None) -> str:
    """``2.2x to 4.5x faster``, ``up to 4.5x faster``, or ``at least 3.8x faster`` if no upper end is known."""
    least, most = _range(low or estimated, estimated if is_open(high) else high or estimated)
    if is_open(high):
        return f"at least {least}x faster"
    return f"up to {most}x faster" if least == most or float(least) <= 1.0 else f"{least}x to {most}x faster"


def is_open(high: float | None) -> bool:
    """True if a gain has no upper end: infinite in findings, null in JSON."""
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
