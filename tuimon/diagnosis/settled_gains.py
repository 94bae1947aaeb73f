"""The gains of fixes as views show them: those of the same advice settle, and do not follow each second's samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.finding import WIDEST_RANGE, Finding, Fix
from tuimon.diagnosis.hysteresis import name_of

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
        return replace(finding, fixes=tuple(self._settled_fix(finding, fix, before, now_s) for fix in finding.fixes))

    def _settled_fix(self, finding: Finding, fix: Fix, before: dict[_Key, _Gain], now_s: float) -> Fix:
        """The gain that is shown; an unknown end stays unknown."""
        found = fix.estimated_speedup, fix.low, fix.high
        if found[0] is None or not all(gain is None or 0.0 < gain < math.inf for gain in found):
            return fix
        known = tuple(gain is not None for gain in found)
        key = (name_of(finding), fix.change or fix.action, finding.where, known)
        logs = [math.log(gain) for gain in found if gain is not None]
        held = self._gains.get(key) or before.get(key) or _Gain(logs, logs, now_s, now_s)
        held.follow(logs, now_s)
        self._gains[key] = held
        if held.shown == logs:
            return fix
        shown = iter(held.shown)
        estimated, low, high = (math.exp(next(shown)) if is_known else None for is_known in known)
        low = _rounded(low, max(estimated or 0.0, high or 0.0))
        return fix._replace(estimated_speedup=estimated, low=low, high=high)


def _rounded(low: float | None, most: float) -> float | None:
    """The lower end, not by rounding alone further than ``WIDEST_RANGE`` below the upper one: that is no range."""
    bound = most / WIDEST_RANGE
    return math.nextafter(bound, math.inf) if low is not None and math.isclose(low, bound) else low
