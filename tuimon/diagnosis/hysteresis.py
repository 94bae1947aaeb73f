"""Hysteresis keeps the primary verdict and the gains of fixes from flickering, and records when the first changed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.finding import WIDEST_RANGE, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rulebook import BY_NAME, SEVERITY
from tuimon.diagnosis.severity import graded, within_share

#: Seconds that a new primary finding must hold: our choice, three windows; a shorter one would follow single windows.
HOLD_S = 3.0
#: ... unless it is graver and takes this much more of the step: our choice; what clearly costs more shows at once.
STRONGER_RATIO = 1.5
_CHANGES_LIMIT = 100
#: Seconds over which a gain is averaged: our choice. Of the 30 s that it rests on, each replaces a thirtieth, but
#: 1 / (1 - share) makes 5x to 3.8x of 80 % and 74 %, as far apart as shares of 150 samples may be; a longer mean would
#: keep back what the first seconds add.
MEAN_S = 5.0
#: A gain stays as it is shown while its mean is within this factor of it: our choice, what a reader takes for equal.
SAME_RATIO = 1.1
#: A gain this many times as large or small as the mean is no scatter but a change, and shows at once: our choice, the
#: widest range of a fix.
CHANGED_RATIO = 2.0
_Key = tuple[object, ...]


class Change(NamedTuple):
    """The primary verdict changed: before and after are ``rule`` or ``rule/cause``, None for no finding."""

    t_s: float
    step: int | None  # steps ended by then
    before: str | None
    after: str | None

    def text(self) -> str:
        """``at step 1,200: input_bound -> compute_bound_cpu``."""
        when = f"at step {self.step:,}: " if self.step is not None else ""
        return f"{when}{self.before or 'nothing'} -> {self.after or 'nothing'}"


class Hysteresis:
    """Orders the findings of each moment so that a brief one does not take the first place.

    One moment a second, B no graver than A::

        found   A  B  A  A  B  B  B  B
        shown   A  A  A  A  A  A  A  B     B has held for HOLD_S
    """

    def __init__(self) -> None:
        self.changes: deque[Change] = deque(maxlen=_CHANGES_LIMIT)
        self._primary: Finding | None = None
        self._gone_s: float | None = None  # since when the primary is not among the findings
        self._challenger: str | None = None
        self._challenged_s = 0.0  # since when the challenger has held
        self._begun = False  # a verdict was given after the warm-up

    def order(self, findings: Sequence[Finding], now_s: float, step: int | None) -> list[Finding]:
        """The findings, with the primary that has held first.

        A primary that is no longer found stays for ``HOLD_S`` at most, even if others take turns meanwhile.
        """
        first = findings[0] if findings else None
        found = next((f for f in findings if name_of(f) == name_of(self._primary)), None)
        if found is not None:
            self._gone_s = None
        elif self._gone_s is None:
            self._gone_s = now_s
        if name_of(first) == name_of(self._primary):
            self._primary, self._challenger = first, None
            return list(findings)
        if self._challenger != (name_of(first) or ""):
            self._challenger, self._challenged_s = name_of(first) or "", now_s
        since_s = self._challenged_s if self._gone_s is None else min(self._challenged_s, self._gone_s)
        if self._yields_to(first) or now_s - since_s >= HOLD_S:
            self._change(first, now_s, step)
            return list(findings)
        kept = found if found is not None else self._primary
        rest = [f for f in findings if kept is None or f.rule != kept.rule]
        return [kept, *rest] if kept is not None else []

    def _yields_to(self, first: Finding | None) -> bool:
        """True if ``first`` replaces the primary verdict at once, without holding for ``HOLD_S``.

        It does if there is no primary yet, or only warm-up; if it is a hang or warm-up; if it adds a cause to the same
        rule; or if it is graver and takes ``STRONGER_RATIO`` times as much of the step.
        """
        old = self._primary
        if old is None or old.rule == "warmup":
            return True
        if first is None:
            return False
        if first.rule in ("warmup", "hang") or (first.rule == old.rule and old.cause is None):
            return True
        graver = SEVERITY[first.severity] < SEVERITY[old.severity]
        return graver and (first.share_of_step or 0.0) > STRONGER_RATIO * (old.share_of_step or 0.0)

    def _change(self, first: Finding | None, now_s: float, step: int | None) -> None:
        before, after = self._primary, first
        self._primary, self._challenger, self._gone_s = first, None, None
        if any(f is not None and f.rule == "warmup" for f in (before, after)):
            return
        if before is not None and after is not None and before.rule == after.rule and before.cause is None:
            return
        if self._begun or before is not None:
            self.changes.append(Change(now_s, step, name_of(before), name_of(after)))
        self._begun = True


def name_of(finding: Finding | None) -> str | None:
    """``rule/cause``, or ``rule`` where there is no cause."""
    if finding is None:
        return None
    return f"{finding.rule}/{finding.cause}" if finding.cause else finding.rule


class _Gain(Struct):
    """A gain with its ends, as shown and as the means that follow it; logarithms: half and twice are equally far."""

    means: list[float]
    shown: list[float]
    since_s: float
    latest_s: float

    def follow(self, found: list[float], now_s: float) -> None:
        """Take what was found now into the means, by the time since the moment before."""
        if abs(found[0] - self.means[0]) > math.log(CHANGED_RATIO):
            self.means, self.shown, self.since_s = found, found, now_s
        passed_s = max(0.0, now_s - self.latest_s)
        held_s = min(MEAN_S, now_s - self.since_s)
        if passed_s and held_s:
            part = passed_s / (held_s + passed_s)
            self.means = [mean + part * (new - mean) for mean, new in zip(self.means, found, strict=True)]
        self.latest_s = now_s
        if max(abs(a - b) for a, b in zip(self.shown, self.means, strict=True)) > math.log(SAME_RATIO):
            self.shown = self.means  # together: the ends belong to the estimate


class SettledGains:
    """Follows the gains of the findings from moment to moment.

    One moment a second, of a fix whose samples scatter::

        found   6.6  4.2  6.2  5.5  6.0
        shown   6.6  5.3  5.3  5.3  5.3
    """

    def __init__(self) -> None:
        self._gains: dict[_Key, _Gain] = {}

    def settle(self, findings: Sequence[Finding], now_s: float) -> list[Finding]:
        """The findings with the gains that are shown; what is no longer found is forgotten."""
        before, self._gains = self._gains, {}
        return [self._settled(finding, before, now_s) for finding in findings]

    def _settled(self, finding: Finding, before: dict[_Key, _Gain], now_s: float) -> Finding:
        fixes = tuple(self._settled_fix(finding, fix, before, now_s) for fix in finding.fixes)
        settled = within_share(replace(finding, fixes=fixes))  # the share beside a gain is of now
        return settled if BY_NAME[finding.rule].is_harm else graded(settled)

    def _settled_fix(self, finding: Finding, fix: Fix, before: dict[_Key, _Gain], now_s: float) -> Fix:
        """The gain that is shown."""
        if fix.estimated_speedup is None or fix.gain is None or math.isinf(fix.gain.high):
            return fix
        key = (name_of(finding), fix.change or fix.action, finding.where)
        logs = [math.log(gain) for gain in (fix.estimated_speedup, *fix.gain)]
        held = self._gains.get(key) or before.get(key) or _Gain(logs, logs, now_s, now_s)
        held.follow(logs, now_s)
        self._gains[key] = held
        if held.shown == logs:
            return fix
        estimated, low, high = map(math.exp, held.shown)
        bound = high / WIDEST_RANGE
        if math.isclose(low, bound):  # by rounding alone it is no further below the upper end
            low = math.nextafter(bound, math.inf)
        return fix._replace(estimated_speedup=estimated, gain=Interval(low, high))
